// Orders the elements along one dimension. NaN counts as larger than everything, equal elements
// keep their order, as PyTorch's stable sort has it.
#pragma once

#include <cstdint>

#include "tessera/base/tensor_view.h"
#include "tessera/base/thread_pool.h"

namespace tessera::kernels {

// The first elements of x in order along `dim`, as many as `values` has there, and the indices
// (i32) they had in x.
void sort(const TensorView& x, int64_t dim, bool descending, const TensorView& values,
          const TensorView& indices, ThreadPool& pool);

}  // namespace tessera::kernels
