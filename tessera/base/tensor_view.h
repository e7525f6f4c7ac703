// A tensor somewhere in memory: where it starts, its element type, its sizes and strides. Owns
// nothing; whoever makes it keeps memory, sizes and strides alive.
#pragma once

#include <cstddef>
#include <span>

#include "tessera/base/shape.h"

namespace tessera {

struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::span<const int64_t> sizes;
  std::span<const int64_t> strides;
  bool present = true;  // an optional operand that was left out is not present

  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
  int64_t numel() const { return tessera::numel(sizes); }
  bool contiguous() const { return is_contiguous(sizes, strides); }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

}  // namespace tessera
