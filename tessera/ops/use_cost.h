// All that a planner asks about one use of an operator: what its row says of the work, and what
// follows from the types of its tensors alone, in one place for all rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/ops/op_def.h"

namespace tessera {

struct UseCost {
  Cost work;
  std::vector<DType> operand_types, result_types;  // of operands that are there
  int64_t operand_bytes = 0, result_bytes = 0;     // each tensor once
  // What sums are kept in before they become a result: f32, or f16 where the node says so; i32 for
  // whole numbers.
  DType partials = DType::f32;
};

UseCost use_cost(const OpDef& row, const OpView& use, std::span<const TensorType> results);

}  // namespace tessera
