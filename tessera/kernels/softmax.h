// Softmax along one dimension, its logarithm, and their gradients. The input is cut into
// [outer, size, inner] around that dimension; sums are made in double.
#pragma once

#include <cstdint>

#include "tessera/base/tensor_view.h"
#include "tessera/base/thread_pool.h"

namespace tessera {

void softmax(ThreadPool& pool, const TensorView& input, int64_t dim, const TensorView& out);
void log_softmax(ThreadPool& pool, const TensorView& input, int64_t dim, const TensorView& out);

// `result` is what the forward computed.
void softmax_backward(ThreadPool& pool, const TensorView& grad, const TensorView& result,
                      int64_t dim, const TensorView& out);
void log_softmax_backward(ThreadPool& pool, const TensorView& grad, const TensorView& result,
                          int64_t dim, const TensorView& out);

}  // namespace tessera
