// Who holds the newest values of a module's weights. Executors over one module share this, keyed by
// the weights' storages: a training executor that ran holds newer values than the host, and whoever
// needs them on the host asks it to write them there first.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace tessera {

class WeightHolder {
 public:
  virtual ~WeightHolder() = default;
  // Writes the newest values to the host and says so in the records.
  virtual void write_weights_to_host() = 0;
};

struct HostWeight {
  uint64_t version = 0;                  // grows whenever an executor writes the host's values
  WeightHolder* newer_values = nullptr;  // null: the host's values are the newest we know
};

// The one record for a tensor's storage, for as long as somebody keeps it.
std::shared_ptr<HostWeight> host_weight(const at::Tensor& tensor);

}  // namespace tessera
