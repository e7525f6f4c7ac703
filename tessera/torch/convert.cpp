#include "tessera/torch/convert.h"

#include <algorithm>
#include <array>

#include "tessera/base/error.h"

namespace tessera {
namespace {

struct Pair {
  at::ScalarType torch;
  DType ours;
};

constexpr std::array<Pair, 10> pairs = {{
    {at::kFloat, DType::f32},
    {at::kHalf, DType::f16},
    {at::kBFloat16, DType::bf16},
    {at::kInt, DType::i32},
    {at::kShort, DType::i16},
    {at::kChar, DType::i8},
    {at::kByte, DType::u8},
    {at::kBool, DType::boolean},
    {at::kLong, DType::i64},
    {at::kDouble, DType::f64},
}};

}  // namespace

DType dtype_of(at::ScalarType type) {
  for (const Pair& pair : pairs) {
    if (pair.torch == type) return pair.ours;
  }
  fail(ErrorKind::user,
       "tensors of type {} cannot be part of a program; use a floating-point, integer or bool type",
       c10::toString(type));
}

bool has_dtype(at::ScalarType type) {
  return std::any_of(pairs.begin(), pairs.end(),
                     [type](const Pair& pair) { return pair.torch == type; });
}

bool is_short_float(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

at::ScalarType scalar_type_of(DType dtype) {
  for (const Pair& pair : pairs) {
    if (pair.ours == dtype) return pair.torch;
  }
  TESSERA_UNREACHABLE("no PyTorch type for {}", name_of(dtype));
}

Shape shape_of(const at::Tensor& tensor) { return tensor.sizes().vec(); }

Geometry geometry_of(const at::Tensor& tensor) {
  return {tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset()};
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

TensorType type_of(const at::Tensor& tensor) {
  return {dtype_of(tensor.scalar_type()), shape_of(tensor)};
}

}  // namespace tessera
