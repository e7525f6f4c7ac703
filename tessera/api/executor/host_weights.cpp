#include "tessera/api/executor/host_weights.h"

#include <unordered_map>
#include <utility>

namespace tessera {

void HolderAccess::write_weights_to_host() {
  const std::shared_lock lock(in_use_);
  if (holder_) holder_->write_weights_to_host();
}

bool HolderAccess::try_write_weights_to_host() {
  const std::shared_lock lock(in_use_);
  return !holder_ || holder_->try_write_weights_to_host();
}

void HolderAccess::close() {
  const std::lock_guard lock(in_use_);
  holder_ = nullptr;
}

std::shared_ptr<HolderAccess> HostWeight::newer_values() const {
  const std::lock_guard lock(mutex_);
  return newer_values_;
}

void HostWeight::set_newer_values(std::shared_ptr<HolderAccess> holder) {
  const std::lock_guard lock(mutex_);
  newer_values_ = std::move(holder);
}

void HostWeight::forget_newer_values_of(const std::shared_ptr<HolderAccess>& holder) {
  const std::lock_guard lock(mutex_);
  if (newer_values_ == holder) newer_values_ = nullptr;
}

std::shared_ptr<HostWeight> host_weight(const at::Tensor& tensor) {
  static std::mutex mutex;
  static std::unordered_map<const c10::StorageImpl*, std::weak_ptr<HostWeight>> weights;
  const std::lock_guard lock(mutex);
  // Addresses are used again: what nobody keeps is forgotten before it can be mistaken.
  std::erase_if(weights, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = weights[tensor.storage().unsafeGetStorageImpl()];
  auto weight = entry.lock();
  if (!weight) entry = weight = std::make_shared<HostWeight>();
  return weight;
}

}  // namespace tessera
