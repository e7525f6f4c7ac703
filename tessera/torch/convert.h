// Between PyTorch's words and ours: element types and geometry.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>

#include "tessera/base/geometry.h"

namespace tessera {

// Error for types that no graph can hold (complex numbers, quantised types).
DType dtype_of(at::ScalarType type);
bool has_dtype(at::ScalarType type);
// float16 or bfloat16: PyTorch has few kernels for them, and programs compute in float32.
bool is_short_float(at::ScalarType type);
at::ScalarType scalar_type_of(DType dtype);

Shape shape_of(const at::Tensor& tensor);
Geometry geometry_of(const at::Tensor& tensor);
std::span<std::byte> bytes_of(const at::Tensor& tensor);  // of a contiguous one
TensorType type_of(const at::Tensor& tensor);  // with PyTorch's own element type, not narrowed

}  // namespace tessera
