#include "tessera/ir/rewrite.h"

#include "tessera/base/error.h"

namespace tessera {

Rewriter::Rewriter(const Graph& old_graph)
    : old_(old_graph), mapped_(static_cast<size_t>(old_graph.value_count())) {
  new_.name = old_.name;
  for (const auto& input : old_.inputs()) {
    replace(input.value, new_.add_input(input.kind, input.name, old_.type(input.value)));
  }
  for (const auto& state : old_.states()) {
    replace(state.initial, new_.add_state(state.kind, state.name, old_.type(state.initial)));
  }
}

ValueId Rewriter::map(ValueId old_value) const {
  if (!old_value.valid()) return {};
  const ValueId value = mapped_[static_cast<size_t>(old_value.index)];
  TESSERA_INVARIANT(value.valid(), "value %{} is used but was not rebuilt", old_value.index);
  return value;
}

std::vector<ValueId> Rewriter::map(const std::vector<ValueId>& old_values) const {
  std::vector<ValueId> values;
  values.reserve(old_values.size());
  for (const ValueId old_value : old_values) values.push_back(map(old_value));
  return values;
}

void Rewriter::replace(ValueId old_value, ValueId new_value) {
  mapped_[static_cast<size_t>(old_value.index)] = new_value;
}

void Rewriter::copy(const Node& old_node) {
  Node node = old_node;
  node.operands = map(old_node.operands);
  std::vector<TensorType> types;
  for (const ValueId result : old_node.results) types.push_back(old_.type(result));
  const NodeId id = new_.add_node(std::move(node), types);
  for (size_t i = 0; i < old_node.results.size(); ++i) {
    replace(old_node.results[i], new_.node(id).results[i]);
  }
}

Graph Rewriter::finish() {
  for (const auto& output : old_.outputs()) new_.add_output(output.name, map(output.value));
  for (size_t i = 0; i < old_.states().size(); ++i) {
    new_.states()[i].after_micro_batch = map(old_.states()[i].after_micro_batch);
    new_.states()[i].after_update = map(old_.states()[i].after_update);
  }
  return std::move(new_);
}

Graph rewrite(const Graph& graph, const std::function<void(Rewriter&, const Node&)>& visit) {
  Rewriter rewriter(graph);
  for (const auto& node : graph.nodes()) visit(rewriter, node);
  return rewriter.finish();
}

}  // namespace tessera
