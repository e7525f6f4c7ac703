#include "tessera/api/executor/borrowed_weights.h"

#include <algorithm>

#include "tessera/base/log.h"
#include "tessera/torch/tensor_memory.h"

namespace tessera {

BorrowedWeights::BorrowedWeights(const std::vector<NamedTensor>& weights) {
  for (const auto& [name, tensor] : weights) {
    const auto record = host_weight(tensor);
    weights_.push_back(
        {name, tensor, change_count(tensor), memory_of(tensor), record, record->version});
  }
}

bool BorrowedWeights::changed(const Borrowed& weight) {
  return change_count(weight.tensor) != weight.tensor_version ||
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
