#include "tessera/ir/graph.h"

#include <array>

#include "tessera/base/error.h"

namespace tessera {

ValueId Graph::add_value(TensorType type, NodeId producer) {
  values_.push_back({std::move(type), producer});
  return {value_count() - 1};
}

ValueId Graph::add_input(InputKind kind, std::string input_name, TensorType type) {
  const ValueId id = add_value(std::move(type), {});
  inputs_.push_back({kind, std::move(input_name), id});
  return id;
}

ValueId Graph::add_state(StateKind kind, std::string state_name, TensorType type) {
  const ValueId id = add_value(std::move(type), {});
  states_.push_back({kind, std::move(state_name), id, id, id});
  return id;
}

NodeId Graph::add_node(Node node, std::span<const TensorType> result_types) {
  const NodeId id{node_count()};
  node.results.clear();
  for (const auto& type : result_types) node.results.push_back(add_value(type, id));
  nodes_.push_back(std::move(node));
  return id;
}

void Graph::add_output(std::string output_name, ValueId value) {
  outputs_.push_back({std::move(output_name), value});
}

const State* Graph::find_state(std::string_view state_name) const {
  for (const auto& state : states_) {
    if (state.name == state_name) return &state;
  }
  return nullptr;
}

std::vector<int32_t> count_uses(const Graph& graph) {
  std::vector<int32_t> uses(static_cast<size_t>(graph.value_count()), 0);
  const auto use = [&](ValueId id) {
    if (id.valid()) ++uses[static_cast<size_t>(id.index)];
  };
  for (const auto& node : graph.nodes()) {
    for (const ValueId operand : node.operands) use(operand);
  }
  for (const auto& output : graph.outputs()) use(output.value);
  for (const auto& state : graph.states()) {
    use(state.after_micro_batch);
    use(state.after_update);
  }
  return uses;
}

std::string_view name_of(Phase phase) {
  return phase == Phase::micro_batch ? "micro_batch" : "update";
}

std::string_view name_of(InputKind kind) {
  return kind == InputKind::data ? "data" : "hyperparameter";
}

std::string_view name_of(StateKind kind) {
  static constexpr std::array<std::string_view, 4> names = {"parameter", "buffer", "optimizer",
                                                            "accumulator"};
  return names[static_cast<size_t>(kind)];
}

}  // namespace tessera
