// Two ranks' numbers made one, element by element: what collectives are made of.
#pragma once

#include <cstddef>

#include "tessera/base/dtype.h"

namespace tessera {

enum class Reduction { sum, min, max, product };

// result[i] becomes what `result[i]` and `more[i]` are together. Halves are computed in float and
// rounded; whole numbers wrap around; of booleans sum and maximum are "or", the others "and". A NaN
// stays one. The two are aligned for their type and do not overlap.
void combine(Reduction reduction, DType dtype, std::byte* result, const std::byte* more,
             size_t count);

}  // namespace tessera
