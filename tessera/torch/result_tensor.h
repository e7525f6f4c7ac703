// Tensors that a program's results are written to. They are ordinary tensors, and yet can be told
// from others: there is nothing to differentiate behind them, which users want to hear in our
// words.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera {

at::Tensor empty_result(at::IntArrayRef shape, at::ScalarType type);

// True for such a tensor and for views of it.
bool is_result(const at::Tensor& tensor);

}  // namespace tessera
