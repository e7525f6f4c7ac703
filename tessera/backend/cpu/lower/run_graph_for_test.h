// Runs a graph with reference kernels on made-up inputs, the same ones every time.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "tessera/backend/cpu/interpreter_for_test.h"

namespace tessera::cpu {

inline std::vector<Bytes> made_up_inputs(const Graph& graph) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-2, 2);
  std::vector<Bytes> inputs;
  for (const Input& input : graph.inputs()) {
    const TensorType& type = graph.type(input.value);
    Bytes& memory = inputs.emplace_back(static_cast<size_t>(bytes(type)));
    for (size_t i = 0; i < memory.size(); i += size_of(type.dtype)) {
      const float value = uniform(random);
      if (type.dtype == DType::f32) {
        std::memcpy(&memory[i], &value, sizeof value);
      } else if (type.dtype == DType::f16) {
        const Half half = to_half(value);
        std::memcpy(&memory[i], &half, sizeof half);
      } else {
        memory[i] = static_cast<std::byte>(value > 0);
      }
    }
  }
  return inputs;
}

inline std::vector<Bytes> run_graph(const Graph& graph) {
  Interpreter interpreter(graph);
  return interpreter.run_micro_batch(made_up_inputs(graph));
}

}  // namespace tessera::cpu
