// The work an operator does, free of any device: enough for a planner to spread it and price it.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "tessera/base/dtype.h"

namespace tessera {

// Which tensor of a convolution is computed from the other two.
enum class Direction : uint8_t { forward, input_gradient, weight_gradient };

// Sums of products: a convolution, or a matrix product with an empty field. The sizes are those of
// the convolution, whichever of its tensors is computed. A matrix product is forward always: what a
// gradient's product was made for does not change its work.
struct ContractionCost {
  int64_t groups = 1, batch = 1, in = 1, out = 1;  // channels per group
  std::vector<int64_t> field, kernel, stride, padding, dilation;
  Direction direction = Direction::forward;
  DType type = DType::f32;
  int64_t multiply_adds = 0;
};
// A recurrent layer in one direction of time: each step waits for the one before it. Its input's
// product with its weights, which does not, is a node of its own.
struct RecurrentCost {
  int64_t steps = 1, batch = 1, hidden = 1;
  int64_t gates = 1;      // products of [batch, hidden] by [hidden, hidden] in a step
  bool backward = false;  // gradients, from the last step to the first
  DType type = DType::f32;
  int64_t multiply_adds = 0;  // of all steps
};
struct ReductionCost {
  int64_t elements = 0, results = 0;
};
struct ElementwiseCost {
  int64_t elements = 0;
  double flops_per_element = 1;
};
struct GatherCost {
  int64_t elements = 0, bytes_moved = 0;
};
struct CopyCost {
  int64_t bytes_moved = 0;
};
// What each replica of a program gives to the others.
struct CollectiveCost {
  int64_t bytes_moved = 0;
};

// What a row says of one use; tensors and their types are in UseCost (use_cost.h), for all rows.
using Cost = std::variant<ContractionCost, RecurrentCost, ReductionCost, ElementwiseCost,
                          GatherCost, CopyCost, CollectiveCost>;

// A single figure for comparisons: floating-point operations, or bytes where nothing is computed.
double work(const Cost& cost);

}  // namespace tessera
