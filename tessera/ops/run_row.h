// Runs a row's reference kernel on plain lists of numbers: for tests of odd cases.
#pragma once

#include <cstring>
#include <string_view>
#include <vector>

#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"

namespace tessera {

// A dense tensor that owns its elements.
struct HostTensor {
  TensorType type;
  std::vector<std::byte> memory;
  Strides strides = contiguous_strides(type.shape);
  bool present = true;

  template <typename T>
  HostTensor(DType dtype, Shape shape, const std::vector<T>& elements)
      : type{dtype, std::move(shape)}, memory(elements.size() * sizeof(T)) {
    if (!elements.empty()) std::memcpy(memory.data(), elements.data(), memory.size());
  }
  explicit HostTensor(TensorType t)
      : type(std::move(t)), memory(static_cast<size_t>(bytes(type))) {}

  template <typename T>
  std::vector<T> elements() const {
    std::vector<T> out(memory.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), memory.data(), memory.size());
    return out;
  }
  TensorView view() { return {memory.data(), type.dtype, type.shape, strides, present}; }
};

inline HostTensor floats(Shape shape, const std::vector<float>& elements) {
  return {DType::f32, std::move(shape), elements};
}
inline HostTensor ints(Shape shape, const std::vector<int32_t>& elements) {
  return {DType::i32, std::move(shape), elements};
}
inline HostTensor left_out() {
  HostTensor tensor(TensorType{DType::f32, {}});
  tensor.present = false;
  return tensor;
}

inline std::vector<HostTensor> run_row(std::string_view name, std::vector<HostTensor> operands,
                                       Attrs attrs = {}, RngState rng = {}) {
  const OpDef& row = op(name);
  attrs = completed(row, std::move(attrs));
  std::vector<std::optional<TensorType>> types;
  std::vector<TensorView> inputs, outputs;
  for (HostTensor& operand : operands) {
    types.push_back(operand.present ? std::optional(operand.type) : std::nullopt);
    inputs.push_back(operand.view());
  }
  std::vector<HostTensor> results;
  for (TensorType type : infer(row, types, attrs)) {
    type.dtype = narrowed(type.dtype);
    results.emplace_back(std::move(type));
  }
  for (HostTensor& result : results) outputs.push_back(result.view());
  ThreadPool pool(2);
  row.cpu({inputs, outputs, attrs, pool, rng});
  return results;
}

}  // namespace tessera
