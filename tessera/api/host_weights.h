// Who holds the newest values of a module's weights. Executors over one module share this, keyed by
// the weights' storages: a training executor that ran holds newer values than the host, and whoever
// needs them on the host asks it to write them there first.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace tessera {

class WeightHolder {
 public:
  virtual ~WeightHolder() = default;
  // Writes the newest values to the host and says so in the records.
  virtual void write_weights_to_host() = 0;
  // The same, unless another thread is at work there: false then. For whoever is at work himself,
  // since that one may be waiting for him.
  virtual bool try_write_weights_to_host() = 0;
};

struct HostWeight {
  std::atomic<uint64_t> version = 0;  // grows whenever an executor writes the host's values
  std::atomic<WeightHolder*> newer_values = nullptr;  // null: the host's are the newest we know
};

// The one record for a tensor's storage, for as long as somebody keeps it.
std::shared_ptr<HostWeight> host_weight(const at::Tensor& tensor);

}  // namespace tessera
