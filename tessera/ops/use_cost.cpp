#include "tessera/ops/use_cost.h"

#include <algorithm>

#include "tessera/ops/partials.h"

namespace tessera {

UseCost use_cost(const OpDef& row, const OpView& use, std::span<const TensorType> results) {
  UseCost cost;
  cost.work = row.cost(use, results);
  for (size_t i = 0; i < use.count(); ++i) {
    if (!use.has(i)) continue;
    cost.operand_types.push_back(use.type(i).dtype);
    cost.operand_bytes += bytes(use.type(i));
  }
  for (const TensorType& result : results) {
    cost.result_types.push_back(result.dtype);
    cost.result_bytes += bytes(result);
  }
  const bool floats =
      std::any_of(cost.operand_types.begin(), cost.operand_types.end(), is_floating) ||
      std::any_of(cost.result_types.begin(), cost.result_types.end(), is_floating);
  cost.partials = sums_in_halves(use.attrs()) ? DType::f16 : floats ? DType::f32 : DType::i32;
  return cost;
}

}  // namespace tessera
