// Tensors that tests write down, with memory of their own.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/base/tensor_view.h"

namespace tessera {

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::u8;
}

template <typename T>
class TestTensor {
 public:
  explicit TestTensor(Shape shape) : TestTensor(shape, std::vector<T>(size(shape))) {}
  TestTensor(Shape shape, std::vector<T> values)
      : values(std::move(values)), shape_(std::move(shape)), strides_(contiguous_strides(shape_)) {}
  TestTensor(Shape shape, Strides strides, std::vector<T> values)
      : values(std::move(values)), shape_(std::move(shape)), strides_(std::move(strides)) {}

  // Values that repeat after `period`, around zero: exact in float, different in neighbours.
  static TestTensor pattern(Shape shape, int period = 13) {
    TestTensor tensor(std::move(shape));
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      const auto k = static_cast<int>(i * 7 % static_cast<size_t>(period));
      tensor.values[i] = static_cast<T>(k - period / 2) * static_cast<T>(0.25);
    }
    return tensor;
  }

  TensorView view() {
    return {reinterpret_cast<std::byte*>(values.data()), dtype_of<T>(), shape_, strides_, true};
  }
  TensorType type() const { return {dtype_of<T>(), shape_}; }

  std::vector<T> values;

 private:
  static size_t size(const Shape& shape) { return static_cast<size_t>(numel(shape)); }

  Shape shape_;
  Strides strides_;
};

inline TensorView no_tensor() {
  TensorView none;
  none.present = false;
  return none;
}

}  // namespace tessera
