// What a graph means, computed the plain way: every value in memory of its own, reference kernels
// only, one thread. Tests compare plans with it.
#pragma once

#include <cstring>
#include <vector>

#include "tessera/base/cpu_level_for_test.h"
#include "tessera/base/thread_pool.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {

using Bytes = std::vector<std::byte>;

class Interpreter {
 public:
  explicit Interpreter(const Graph& graph) : graph_(graph), values_(graph.value_count()) {
    for (const State& state : graph.states()) {
      states.emplace_back(static_cast<size_t>(bytes(graph.type(state.initial))));
    }
  }

  std::vector<Bytes> states;

  // Inputs in the graph's order, of both kinds. Returns the outputs.
  std::vector<Bytes> run_micro_batch(const std::vector<Bytes>& inputs, RngState rng = {}) {
    for (size_t i = 0; i < inputs.size(); ++i) value(graph_.inputs()[i].value) = inputs[i];
    for (size_t i = 0; i < states.size(); ++i) value(graph_.states()[i].initial) = states[i];
    run(Phase::micro_batch, rng);
    for (size_t i = 0; i < states.size(); ++i) {
      states[i] = value(graph_.states()[i].after_micro_batch);
    }
    std::vector<Bytes> outputs;
    for (const Output& output : graph_.outputs()) outputs.push_back(value(output.value));
    return outputs;
  }

  void run_update(RngState rng = {}) {
    run(Phase::update, rng);
    for (size_t i = 0; i < states.size(); ++i) states[i] = value(graph_.states()[i].after_update);
  }

 private:
  Bytes& value(ValueId id) { return values_[static_cast<size_t>(id.index)]; }

  void run(Phase phase, RngState rng) {
    ThreadPool pool(1, level_for_test());
    std::vector<Strides> strides;
    strides.reserve(1024);
    const auto view = [&](ValueId id) -> TensorView {
      if (!id.valid()) return {nullptr, DType::f32, {}, {}, false};
      const TensorType& type = graph_.type(id);
      value(id).resize(static_cast<size_t>(bytes(type)));
      strides.push_back(contiguous_strides(type.shape));
      return {value(id).data(), type.dtype, type.shape, strides.back()};
    };
    for (const Node& node : graph_.nodes()) {
      if (node.phase != phase && op(node).kind != Kind::source) continue;
      strides.clear();
      std::vector<TensorView> inputs, outputs;
      for (const ValueId id : node.operands) inputs.push_back(view(id));
      for (const ValueId id : node.results) outputs.push_back(view(id));
      op(node).cpu(
          {.inputs = inputs, .outputs = outputs, .attrs = node.attrs, .pool = pool, .rng = rng});
    }
  }

  const Graph& graph_;
  std::vector<Bytes> values_;
};

}  // namespace tessera::cpu
