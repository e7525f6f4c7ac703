// Whether a tensor of the user's can be read at all, and by a program that is compiled.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "tessera/base/shape.h"

namespace tessera {

// Error for an input that has no elements to read: a sparse one, one on another device, or one
// whose storage was made smaller.
void check_readable(const std::string& name, const at::Tensor& tensor);

// Error for a parameter or buffer whose memory is gone.
void check_memory(const std::string& name, const at::Tensor& tensor);

// Error for a tensor of another type or shape than the program was compiled for.
void check_as_compiled(const std::string& name, const at::Tensor& tensor, at::ScalarType type,
                       const Shape& shape);

}  // namespace tessera
