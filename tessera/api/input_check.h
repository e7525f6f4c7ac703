// Whether a tensor can be an input of a program at all.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace tessera {

// Error for a tensor that has no elements to read: a sparse one, or one on another device.
void check_readable(const std::string& name, const at::Tensor& tensor);

}  // namespace tessera
