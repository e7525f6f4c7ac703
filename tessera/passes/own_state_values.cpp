#include "tessera/passes/own_state_values.h"

#include <unordered_set>

#include "tessera/ir/rewrite.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

class StateOwner {
 public:
  explicit StateOwner(Rewriter& r) : r_(r), graph_(r.new_graph()) {}

  // The values that states take at the end of `phase`: `old_value` itself or a copy of it.
  void own(std::vector<ValueId>& values, Phase phase) {
    const auto& states = r_.old_graph().states();
    values.resize(states.size());
    for (size_t i = 0; i < states.size(); ++i) {
      const State& state = states[i];
      const bool update = phase == Phase::update;
      const ValueId old_value = update ? state.after_update : state.after_micro_batch;
      if (old_value == (update ? state.after_micro_batch : state.initial)) continue;
      values[i] = owned(r_.map(old_value), phase);
    }
  }

 private:
  ValueId owned(ValueId value, Phase phase) {
    const Node* producer = graph_.producer(value);
    const bool shared = !producer || op(*producer).kind == Kind::view;
    if (!shared && taken_.insert(value).second) return value;
    const bool remade = producer && op(*producer).kind == Kind::source;
    const ValueId copy = remade ? again(*producer, value, phase) : copied(value, phase);
    taken_.insert(copy);
    return copy;
  }

  // Making a source's value once more reads no memory.
  ValueId again(const Node& source, ValueId value, Phase phase) {
    Node node = source;
    node.phase = phase;
    const TensorType type = graph_.type(value);
    return graph_.node(graph_.add_node(std::move(node), {&type, 1})).results[0];
  }

  ValueId copied(ValueId value, Phase phase) {
    Builder builder(graph_);
    const Node* producer = graph_.producer(value);
    builder.set_place(producer ? producer->origin : Origin{}, phase,
                      producer ? producer->stage : 0);
    return builder.add("copy", {value});
  }

  Rewriter& r_;
  Graph& graph_;
  std::unordered_set<ValueId> taken_;
};

}  // namespace

void own_state_values(Graph& graph) {
  Rewriter r(graph);
  StateOwner owner(r);
  std::vector<ValueId> after[2];
  for (const Phase phase : {Phase::micro_batch, Phase::update}) {
    for (const auto& node : graph.nodes()) {
      if (node.phase == phase) r.copy(node);
    }
    owner.own(after[static_cast<size_t>(phase)], phase);
  }
  Graph result = r.finish();
  for (size_t i = 0; i < result.states().size(); ++i) {
    State& state = result.states()[i];
    const bool updated = state.after_update != state.after_micro_batch;
    if (after[0][i].valid()) state.after_micro_batch = after[0][i];
    if (!updated) state.after_update = state.after_micro_batch;
    if (after[1][i].valid()) state.after_update = after[1][i];
  }
  graph = std::move(result);
}

}  // namespace tessera
