// Moves a tensor of any strides into dense memory: views that strides cannot say, outputs, and
// states whose new value could not be made in place.
#pragma once

#include "tessera/backend/cpu/kernels/table.h"

namespace tessera::cpu {

// `to` is dense, of the same type and sizes, and does not overlap `from`.
void copy_dense(const TensorView& from, std::byte* to, ThreadPool& pool);

// The other way round: `to` has any strides.
void copy_from_dense(const std::byte* from, const TensorView& to, ThreadPool& pool);

// From a tensor of that geometry, one input, into dense memory, one output.
KernelChoice choose_copy(DType dtype, const Geometry& from, const Target& target);

}  // namespace tessera::cpu
