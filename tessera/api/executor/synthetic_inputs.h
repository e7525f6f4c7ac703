// Made-up inputs for timing a program without feeding it.
#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/base/shape.h"

namespace tessera {

// Floats are drawn from a normal distribution, the same ones every time; whole numbers are zero,
// since they may be indices. PyTorch's own random numbers are not touched.
at::Tensor synthetic_values(const TensorType& type);

}  // namespace tessera
