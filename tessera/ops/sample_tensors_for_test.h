// Tensors with the values of a row's samples, in memory that shows who writes outside of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/base/half.h"
#include "tessera/base/rng.h"
#include "tessera/ops/op_def.h"

namespace tessera {

inline constexpr size_t guard_bytes = 64;
inline constexpr auto guard = std::byte{0xA5};

// A tensor with guarded memory around it.
class Tensor {
 public:
  Tensor(TensorType type, Strides strides, std::byte filling)
      : type_(std::move(type)), strides_(std::move(strides)) {
    int64_t elements = numel(type_.shape) == 0 ? 0 : 1;
    for (size_t i = 0; i < strides_.size() && elements > 0; ++i) {
      elements += (type_.shape[i] - 1) * strides_[i];
    }
    const size_t size = static_cast<size_t>(elements) * size_of(type_.dtype);
    memory_.assign(size + 2 * guard_bytes, filling);
    std::fill_n(memory_.begin(), guard_bytes, guard);
    std::fill_n(memory_.end() - guard_bytes, guard_bytes, guard);
  }

  TensorView view() {
    return {memory_.data() + guard_bytes, type_.dtype, type_.shape, strides_, true};
  }
  const TensorType& type() const { return type_; }
  const std::vector<std::byte>& memory() const { return memory_; }
  bool guards_hold() const {
    const auto is_guard = [](std::byte b) { return b == guard; };
    return std::all_of(memory_.begin(), memory_.begin() + guard_bytes, is_guard) &&
           std::all_of(memory_.end() - guard_bytes, memory_.end(), is_guard);
  }

 private:
  TensorType type_;
  Strides strides_;
  std::vector<std::byte> memory_;
};

inline void store(std::byte* to, DType dtype, double value) {
  const auto put = [&](auto x) { std::memcpy(to, &x, sizeof x); };
  switch (dtype) {
    case DType::f32:
      return put(static_cast<float>(value));
    case DType::f16:
      return put(to_half(static_cast<float>(value)));
    case DType::i32:
      return put(static_cast<int32_t>(std::floor(value)));
    case DType::i16:
      return put(static_cast<int16_t>(std::floor(value)));
    case DType::i8:
      return put(static_cast<int8_t>(std::floor(value)));
    case DType::u8:
      return put(static_cast<uint8_t>(std::floor(value)));
    case DType::boolean:
      return put(static_cast<uint8_t>(std::floor(value) != 0));
    default:
      FAIL() << "samples of type " << name_of(dtype) << " cannot be made";
  }
}

// The sample's values, the same for any strides.
inline Tensor make_operand(const SampleOperand& sample, size_t number, const Strides& strides) {
  Tensor tensor(sample.type, strides, std::byte{0xFF});
  const Shape& shape = sample.type.shape;
  const TensorView view = tensor.view();
  for (int64_t i = 0; i < numel(shape); ++i) {
    int64_t offset = 0;
    for (size_t d = shape.size(), left = static_cast<size_t>(i); d-- > 0;) {
      offset += static_cast<int64_t>(left) % shape[d] * strides[d];
      left /= static_cast<size_t>(shape[d]);
    }
    const auto words = random_words({.seed = 7, .step = 0}, number, static_cast<uint64_t>(i));
    const double u = static_cast<double>(uniform_from_word(words[0]));
    store(view.data + offset * static_cast<int64_t>(size_of(view.dtype)), view.dtype,
          sample.low + u * (sample.high - sample.low));
  }
  return tensor;
}

// Dimensions in reverse order in memory, and a gap after every element.
inline Strides odd_strides(const Shape& shape) {
  Strides strides;
  int64_t stride = 2;
  for (const int64_t size : shape) {
    strides.push_back(stride);
    stride *= std::max<int64_t>(size, 1);
  }
  return strides;
}

inline std::vector<std::optional<TensorType>> types_of(const Sample& sample) {
  std::vector<std::optional<TensorType>> out;
  for (const SampleOperand& operand : sample.operands) {
    out.push_back(operand.present ? std::optional(operand.type) : std::nullopt);
  }
  return out;
}

inline std::vector<Tensor> make_operands(const Sample& sample, bool odd) {
  std::vector<Tensor> operands;
  for (size_t i = 0; i < sample.operands.size(); ++i) {
    const Shape& shape = sample.operands[i].type.shape;
    operands.push_back(
        make_operand(sample.operands[i], i, odd ? odd_strides(shape) : contiguous_strides(shape)));
  }
  return operands;
}

inline std::vector<TensorView> views_of(const Sample& sample, std::vector<Tensor>& operands) {
  std::vector<TensorView> views;
  for (size_t i = 0; i < operands.size(); ++i) {
    views.push_back(operands[i].view());
    views.back().present = sample.operands[i].present;
  }
  return views;
}

}  // namespace tessera
