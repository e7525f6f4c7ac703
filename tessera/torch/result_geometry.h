// How PyTorch would lay out a fresh result: later views depend on it.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "tessera/base/geometry.h"
#include "tessera/ops/op_def.h"

namespace tessera {

Geometry result_geometry(Kind kind, std::span<const at::Tensor> operands, const Shape& shape);

// The geometry of a copy of `tensor` in that memory format (PyTorch's rule for empty_like).
Geometry copy_geometry(const at::Tensor& tensor, std::optional<at::MemoryFormat> format);

}  // namespace tessera
