// Runs one operator for a test: composites are taken apart, every row runs by its reference kernel.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/cpu_level_for_test.h"
#include "tessera/base/error.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/run_reference.h"

namespace tessera {

// A dense tensor with memory of its own; not `present` for an operand left out or a result that
// nobody may use. T is the type of elements in memory, uint8_t for bool.
struct HostTensor {
  TensorType type;
  std::vector<std::byte> memory;
  Strides strides = contiguous_strides(type.shape);
  bool present = true;

  explicit HostTensor(TensorType t)
      : type(std::move(t)), memory(static_cast<size_t>(bytes(type))) {}
  template <typename T>
  HostTensor(DType dtype, Shape shape, const std::vector<T>& elements)
      : HostTensor(TensorType{dtype, std::move(shape)}) {
    check_holds<T>();
    TESSERA_INVARIANT(elements.size() * sizeof(T) == memory.size(), "{} elements are not {}",
                      elements.size(), to_string(type));
    if (!elements.empty()) std::memcpy(memory.data(), elements.data(), memory.size());
  }

  template <typename T>
  std::vector<T> elements() const {
    check_holds<T>();
    std::vector<T> out(memory.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), memory.data(), memory.size());
    return out;
  }

  // Valid as long as the tensor.
  TensorView view() { return {memory.data(), type.dtype, type.shape, strides, present}; }

 private:
  template <typename T>
  void check_holds() const {
    TESSERA_INVARIANT(are_elements_of<T>(type.dtype), "elements of {} are of another type",
                      to_string(type));
  }
};

inline HostTensor floats(Shape shape, const std::vector<float>& elements) {
  return {DType::f32, std::move(shape), elements};
}
inline HostTensor ints(Shape shape, const std::vector<int32_t>& elements) {
  return {DType::i32, std::move(shape), elements};
}
inline HostTensor bools(Shape shape, const std::vector<uint8_t>& elements) {
  return {DType::boolean, std::move(shape), elements};
}
inline HostTensor left_out() {
  HostTensor tensor(TensorType{DType::f32, {}});
  tensor.present = false;
  return tensor;
}

class OpRun {
 public:
  OpRun(std::string_view name, const std::vector<HostTensor>& operands, Attrs attrs = {},
        RngState rng = {}, int threads = 2)
      : rng_(rng), threads_(threads) {
    const OpDef& row = op(name);
    Node node;
    node.op = row.name;
    node.attrs = completed(row, std::move(attrs));
    for (const HostTensor& operand : operands) {
      ValueId id;
      if (operand.present) {
        id = graph_.add_input(InputKind::data, "x", operand.type);
        keep(id, operand);
      }
      node.operands.push_back(id);
    }
    infer(row, types_of(node), node.attrs);
    results_ = run(node);
  }

  size_t size() const { return results_.size(); }
  const HostTensor& operator[](size_t result) const { return results_.at(result); }
  // Names of the rows whose kernels ran.
  const std::vector<std::string>& ran() const { return ran_; }

 private:
  std::vector<std::optional<TensorType>> types_of(const Node& node) const {
    std::vector<std::optional<TensorType>> types;
    for (const ValueId id : node.operands) {
      types.push_back(id.valid() ? std::optional(graph_.type(id)) : std::nullopt);
    }
    return types;
  }

  void keep(ValueId id, HostTensor tensor) {
    const auto at = static_cast<size_t>(id.index);
    if (values_.size() <= at) values_.resize(at + 1, left_out());
    values_[at] = std::move(tensor);
  }
  HostTensor kept(ValueId id) const {
    return id.valid() ? values_[static_cast<size_t>(id.index)] : left_out();
  }

  std::vector<HostTensor> run(const Node& node) {
    const OpDef& row = op(node.op);
    if (row.decompose) {
      const int32_t first = graph_.node_count();
      Builder builder(graph_);
      const auto parts = row.decompose(builder, node);
      if (!parts.empty()) return run_parts(first, parts);
    }
    return run_kernel(row, node);
  }

  std::vector<HostTensor> run_parts(int32_t first, const std::vector<ValueId>& wanted) {
    const int32_t last = graph_.node_count();
    for (int32_t i = first; i < last; ++i) {
      const Node node = graph_.node({i});
      const auto tensors = run(node);
      for (size_t k = 0; k < tensors.size(); ++k) keep(node.results[k], tensors[k]);
    }
    std::vector<HostTensor> out;
    for (const ValueId id : wanted) out.push_back(kept(id));
    return out;
  }

  std::vector<HostTensor> run_kernel(const OpDef& row, const Node& node) {
    ran_.push_back(row.name);
    std::vector<HostTensor> operands, results;
    for (const ValueId id : node.operands) operands.push_back(kept(id));
    for (TensorType type : infer(row, types_of(node), node.attrs)) {
      type.dtype = narrowed(type.dtype);
      results.emplace_back(std::move(type));
    }
    std::vector<TensorView> inputs, outputs;
    for (HostTensor& operand : operands) inputs.push_back(operand.view());
    for (HostTensor& result : results) outputs.push_back(result.view());
    ThreadPool pool(threads_, level_for_test());
    run_reference(
        row,
        {.inputs = inputs, .outputs = outputs, .attrs = node.attrs, .pool = pool, .rng = rng_});
    return results;
  }

  RngState rng_;
  int threads_;
  Graph graph_;
  std::vector<HostTensor> values_;  // by ValueId
  std::vector<HostTensor> results_;
  std::vector<std::string> ran_;
};

}  // namespace tessera
