// Whether a tensor can be an input of a program at all, or of one that is compiled.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "tessera/base/shape.h"

namespace tessera {

// Error for a tensor that has no elements to read: a sparse one, or one on another device.
void check_readable(const std::string& name, const at::Tensor& tensor);

// Error for a tensor of another type or shape than the program was compiled for.
void check_as_compiled(const std::string& name, const at::Tensor& tensor, at::ScalarType type,
                       const Shape& shape);

}  // namespace tessera
