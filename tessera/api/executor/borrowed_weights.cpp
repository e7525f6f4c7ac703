#include "tessera/api/executor/borrowed_weights.h"

#include <algorithm>

#include "tessera/base/log.h"

namespace tessera {
namespace {

// Tensors made under torch.inference_mode() do not count their changes.
uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor._version();
}

const void* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().data() : nullptr;
}

}  // namespace

BorrowedWeights::BorrowedWeights(const std::vector<NamedTensor>& weights) {
  for (const auto& [name, tensor] : weights) {
    const auto record = host_weight(tensor);
    weights_.push_back(
        {name, tensor, version_of(tensor), memory_of(tensor), record, record->version});
  }
}

bool BorrowedWeights::changed(const Borrowed& weight) {
  return version_of(weight.tensor) != weight.tensor_version ||
         memory_of(weight.tensor) != weight.memory ||
         weight.record->version != weight.record_version || weight.record->newer_values();
}

void BorrowedWeights::notice_changes() {
  const auto at = std::find_if(weights_.begin(), weights_.end(), &changed);
  if (at == weights_.end()) return;
  log(LogLevel::warn,
      "'{}' of a wrapped model that forward calls has changed since the model around it was "
      "compiled, whose program keeps the values of that time; call destroy() on the outer model to "
      "compile it anew",
      at->name);
  weights_.clear();
}

}  // namespace tessera
