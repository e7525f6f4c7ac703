// The work an operator does, free of any device: enough for a planner to spread it and price it.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "tessera/base/dtype.h"

namespace tessera {

// Sums of products: a convolution, or a matrix product with an empty field.
struct ContractionCost {
  int64_t groups = 1, batch = 1, in = 1, out = 1;  // channels per group
  std::vector<int64_t> field, kernel, stride, dilation;
  DType type = DType::f32;
  int64_t multiply_adds = 0;
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
struct CollectiveCost {
  int64_t bytes_moved = 0;
};

using Cost = std::variant<ContractionCost, ReductionCost, ElementwiseCost, GatherCost, CopyCost,
                          CollectiveCost>;

// A single figure for comparisons: floating-point operations, or bytes where nothing is computed.
double work(const Cost& cost);

}  // namespace tessera
