// Who holds the newest values of a module's weights. Executors over one module share this, keyed by
// the weights' storages: a training executor that ran holds newer values than the host, and whoever
// needs them on the host asks it to write them there first.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>

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

// How others reach a holder, who may be gone before they are done.
class HolderAccess {
 public:
  explicit HolderAccess(WeightHolder& holder) : holder_(&holder) {}

  void write_weights_to_host();      // nothing to write where the holder is gone
  bool try_write_weights_to_host();  // true there
  void close();                      // the holder goes; waits for whoever is asking him

 private:
  std::shared_mutex in_use_;  // shared by those who ask
  WeightHolder* holder_;
};

class HostWeight {
 public:
  std::atomic<uint64_t> version = 0;  // grows whenever an executor writes the host's values

  // Who has newer values than the host; null: the host's are the newest we know.
  std::shared_ptr<HolderAccess> newer_values() const;
  void set_newer_values(std::shared_ptr<HolderAccess> holder);
  void forget_newer_values_of(const std::shared_ptr<HolderAccess>& holder);

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<HolderAccess> newer_values_;
};

// The one record for a tensor's storage, for as long as somebody keeps it.
std::shared_ptr<HostWeight> host_weight(const at::Tensor& tensor);

}  // namespace tessera
