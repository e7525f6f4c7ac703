#include "tessera/api/host_weights.h"

#include <mutex>
#include <unordered_map>

namespace tessera {

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
