#include "tessera/runtime/executable.h"

namespace tessera {

Executable::Executable(Graph graph, cpu::Plan plan, StepSignature signature)
    : graph_(std::move(graph)), plan_(std::move(plan)), signature_(std::move(signature)) {
  check_fits(signature_, graph_);
  for (const Input& input : graph_.inputs()) {
    if (input.kind == InputKind::data) continue;
    hyperparameters_.push_back({input.name, graph_.type(input.value)});
  }
  for (const State& state : graph_.states()) {
    states_.push_back({state.name, state.kind, graph_.type(state.initial)});
  }
}

TensorType Executable::host_type(size_t state) const {
  TensorType type = states_[state].type;
  if (const GroupedState* grouped = signature_.grouped(state)) {
    const int64_t values = grouped->of_every_replica ? signature_.replicas
                                                     : grouped->groups.count(signature_.replicas);
    type.shape.insert(type.shape.begin(), values);
  }
  return type;
}

}  // namespace tessera
