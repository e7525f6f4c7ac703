// Adds up the outputs of micro-batches.
#pragma once

#include <cstddef>

#include "tessera/base/tensor_view.h"

namespace tessera::cpu {

// Adds a tensor of any strides to the dense one at `sum`, of the same type and sizes: floats in
// f32, halves too and rounded each time, integers in their own type (they wrap around), bools by
// or.
void add_into(const TensorView& value, std::byte* sum);

}  // namespace tessera::cpu
