// Runs one operator for a test: composites are taken apart, every row by its reference kernel.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"

namespace tessera {

// A dense tensor; not `present` for an operand left out or a result that nobody may use.
struct RunTensor {
  TensorType type;
  std::vector<std::byte> memory;
  bool present = true;

  static RunTensor none() { return {{}, {}, false}; }
  static RunTensor of(DType dtype, Shape shape, const std::vector<double>& values) {
    RunTensor tensor{{dtype, std::move(shape)}, {}};
    for (const double value : values) {
      if (dtype == DType::f32) tensor.append(static_cast<float>(value));
      if (dtype == DType::i32) tensor.append(static_cast<int32_t>(value));
      if (dtype == DType::boolean) tensor.append(static_cast<uint8_t>(value));
    }
    return tensor;
  }
  static RunTensor reals(Shape shape, const std::vector<double>& values) {
    return of(DType::f32, std::move(shape), values);
  }
  static RunTensor integers(Shape shape, const std::vector<double>& values) {
    return of(DType::i32, std::move(shape), values);
  }

  std::vector<double> values() const {
    std::vector<double> out;
    for (int64_t i = 0; i < numel(type.shape); ++i) {
      if (type.dtype == DType::f32) out.push_back(reinterpret_cast<const float*>(memory.data())[i]);
      if (type.dtype == DType::i32) {
        out.push_back(reinterpret_cast<const int32_t*>(memory.data())[i]);
      }
      if (type.dtype == DType::boolean)
        out.push_back(static_cast<double>(memory[static_cast<size_t>(i)]));
    }
    return out;
  }

 private:
  template <typename T>
  void append(T value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    memory.insert(memory.end(), first, first + sizeof value);
  }
};

class OpRun {
 public:
  std::vector<RunTensor> results;
  std::vector<std::string> ran;  // names of the rows whose kernels ran

  OpRun(std::string_view name, const std::vector<RunTensor>& operands, Attrs attrs = {}) {
    const OpDef& row = op(name);
    Node node;
    node.op = row.name;
    node.attrs = completed(row, std::move(attrs));
    for (const RunTensor& operand : operands) {
      ValueId id;
      if (operand.present) {
        id = graph_.add_input(InputKind::data, "x", operand.type);
        keep(id, operand);
      }
      node.operands.push_back(id);
    }
    infer(row, types_of(node), node.attrs);
    results = run(node);
  }

 private:
  std::vector<std::optional<TensorType>> types_of(const Node& node) const {
    std::vector<std::optional<TensorType>> types;
    for (const ValueId id : node.operands) {
      types.push_back(id.valid() ? std::optional(graph_.type(id)) : std::nullopt);
    }
    return types;
  }

  void keep(ValueId id, RunTensor tensor) {
    const auto at = static_cast<size_t>(id.index);
    if (values_.size() <= at) values_.resize(at + 1);
    values_[at] = std::move(tensor);
  }

  std::vector<RunTensor> run(const Node& node) {
    const OpDef& row = op(node.op);
    if (row.decompose) {
      const int32_t first = graph_.node_count();
      Builder builder(graph_);
      const auto parts = row.decompose(builder, node);
      if (!parts.empty()) return run_parts(first, parts);
    }
    return run_kernel(row, node);
  }

  std::vector<RunTensor> run_parts(int32_t first, const std::vector<ValueId>& wanted) {
    const int32_t last = graph_.node_count();
    for (int32_t i = first; i < last; ++i) {
      const Node node = graph_.node({i});
      const auto tensors = run(node);
      for (size_t k = 0; k < tensors.size(); ++k) keep(node.results[k], tensors[k]);
    }
    std::vector<RunTensor> out;
    for (const ValueId id : wanted) {
      out.push_back(id.valid() ? values_[static_cast<size_t>(id.index)] : RunTensor::none());
    }
    return out;
  }

  std::vector<RunTensor> run_kernel(const OpDef& row, const Node& node) {
    ran.push_back(row.name);
    std::vector<RunTensor> out;
    for (TensorType type : infer(row, types_of(node), node.attrs)) {
      type.dtype = narrowed(type.dtype);
      const auto size = static_cast<size_t>(bytes(type));
      out.push_back({std::move(type), std::vector<std::byte>(size)});
    }
    std::vector<Strides> strides;
    strides.reserve(node.operands.size() + out.size());  // views point into it
    const auto view = [&](RunTensor& tensor) {
      strides.push_back(contiguous_strides(tensor.type.shape));
      return TensorView{tensor.memory.data(), tensor.type.dtype, tensor.type.shape, strides.back(),
                        true};
    };
    std::vector<TensorView> inputs, outputs;
    for (const ValueId id : node.operands) {
      inputs.emplace_back();
      inputs.back().present = id.valid();
      if (id.valid()) inputs.back() = view(values_[static_cast<size_t>(id.index)]);
    }
    for (RunTensor& tensor : out) outputs.push_back(view(tensor));
    ThreadPool pool(1);
    row.cpu({inputs, outputs, node.attrs, pool, {}});
    return out;
  }

  Graph graph_;
  std::vector<RunTensor> values_;
};

}  // namespace tessera
