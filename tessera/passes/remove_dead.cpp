#include "tessera/passes/remove_dead.h"

#include <algorithm>

#include "tessera/ir/rewrite.h"

namespace tessera {
namespace {

// By value: whether an output or a state depends on it.
std::vector<bool> find_live(const Graph& graph) {
  std::vector<bool> live(static_cast<size_t>(graph.value_count()), false);
  const auto mark = [&](ValueId value) {
    if (value.valid()) live[static_cast<size_t>(value.index)] = true;
  };
  for (const auto& output : graph.outputs()) mark(output.value);
  for (const auto& state : graph.states()) {
    mark(state.after_micro_batch);
    mark(state.after_update);
  }
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    const bool used = std::any_of(node.results.begin(), node.results.end(), [&](ValueId result) {
      return live[static_cast<size_t>(result.index)];
    });
    if (!used) continue;
    for (const ValueId operand : node.operands) mark(operand);
  }
  return live;
}

}  // namespace

void remove_dead(Graph& graph) {
  const std::vector<bool> live = find_live(graph);
  graph = rewrite(graph, [&](Rewriter& r, const Node& node) {
    for (const ValueId result : node.results) {
      if (live[static_cast<size_t>(result.index)]) return r.copy(node);
    }
  });
}

}  // namespace tessera
