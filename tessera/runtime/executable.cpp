#include "tessera/runtime/executable.h"

namespace tessera {

Executable::Executable(Graph graph, cpu::Plan plan)
    : graph_(std::move(graph)), plan_(std::move(plan)) {
  for (const Input& input : graph_.inputs()) {
    auto& list = input.kind == InputKind::data ? data_inputs_ : hyperparameters_;
    list.push_back({input.name, graph_.type(input.value)});
  }
  for (const Output& output : graph_.outputs()) {
    outputs_.push_back({output.name, graph_.type(output.value)});
  }
  for (const State& state : graph_.states()) {
    states_.push_back({state.name, state.kind, graph_.type(state.initial)});
  }
}

}  // namespace tessera
