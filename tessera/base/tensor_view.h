// A tensor somewhere in memory: where it starts, its element type, its sizes and strides. Owns
// nothing; whoever makes it keeps memory, sizes and strides alive.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "tessera/base/half.h"
#include "tessera/base/shape.h"

namespace tessera {

// Whether elements of that type in memory are of the C++ type T.
template <typename T>
constexpr bool are_elements_of(DType dtype) {
  using Element = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Element, float>) return dtype == DType::f32;
  if constexpr (std::is_same_v<Element, Half>) return dtype == DType::f16;
  if constexpr (std::is_same_v<Element, int32_t>) return dtype == DType::i32;
  if constexpr (std::is_same_v<Element, int16_t>) return dtype == DType::i16;
  if constexpr (std::is_same_v<Element, int8_t>) return dtype == DType::i8;
  if constexpr (std::is_same_v<Element, uint8_t>) {
    return dtype == DType::u8 || dtype == DType::boolean;
  }
  if constexpr (std::is_same_v<Element, bool>) return dtype == DType::boolean;
  if constexpr (std::is_same_v<Element, int64_t>) return dtype == DType::i64;
  if constexpr (std::is_same_v<Element, double>) return dtype == DType::f64;
  return false;
}

// InternalError: a kernel reads an operand as another type than its operator's rule promised.
[[noreturn]] void fail_other_elements(DType dtype, size_t bytes_read);

template <typename T>
void expect_elements_of(DType dtype) {
  if (!are_elements_of<T>(dtype)) [[unlikely]]
    fail_other_elements(dtype, sizeof(T));
}

struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::span<const int64_t> sizes;
  std::span<const int64_t> strides;
  bool present = true;  // an optional operand that was left out is not present

  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
  int64_t numel() const { return tessera::numel(sizes); }
  bool contiguous() const { return is_contiguous(sizes, strides); }
  // The elements; InternalError where they are of another type.
  template <typename T>
  T* as() const {
    expect_elements_of<T>(dtype);
    return reinterpret_cast<T*>(data);
  }
};

}  // namespace tessera
