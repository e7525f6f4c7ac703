#include "tessera/passes/accumulate_early.h"

#include <algorithm>
#include <vector>

#include "tessera/ir/rewrite.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

bool is_cheap(const Node& node) {
  return op(node).kind == Kind::elementwise || op(node).kind == Kind::view;
}

// Element-wise nodes and views of micro-batches that only accumulators depend on, by number.
std::vector<bool> find_accumulation(const Graph& graph) {
  const auto count = static_cast<size_t>(graph.value_count());
  std::vector<bool> gathered(count, false), used_elsewhere(count, false);
  const auto use_elsewhere = [&](ValueId value) {
    if (value.valid()) used_elsewhere[static_cast<size_t>(value.index)] = true;
  };
  for (const Output& output : graph.outputs()) use_elsewhere(output.value);
  for (const State& state : graph.states()) {
    use_elsewhere(state.after_update == state.after_micro_batch ? ValueId{} : state.after_update);
    if (state.kind == StateKind::accumulator) {
      gathered[static_cast<size_t>(state.after_micro_batch.index)] = true;
    } else {
      use_elsewhere(state.after_micro_batch);
    }
  }
  std::vector<bool> found(graph.nodes().size(), false);
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    if (node.phase == Phase::update) continue;  // reads what micro-batches have made, after them
    found[i] = is_cheap(node) &&
               std::all_of(node.results.begin(), node.results.end(), [&](ValueId result) {
                 const auto index = static_cast<size_t>(result.index);
                 return gathered[index] && !used_elsewhere[index];
               });
    for (const ValueId operand : node.operands) {
      if (!operand.valid()) continue;
      auto& users = found[i] ? gathered : used_elsewhere;
      users[static_cast<size_t>(operand.index)] = true;
    }
  }
  return found;
}

// Copies each of these nodes as soon as all that it reads is there; the others keep their order.
class EarlyCopies {
 public:
  EarlyCopies(const Graph& graph, std::vector<bool> early)
      : early_(std::move(early)), waiting_for_(static_cast<size_t>(graph.value_count())) {
    std::vector<bool> is_made(static_cast<size_t>(graph.value_count()), false);
    for (const Node& node : graph.nodes()) {
      for (const ValueId result : node.results) is_made[static_cast<size_t>(result.index)] = true;
    }
    missing_.resize(graph.nodes().size());
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      if (!early_[i]) continue;
      for (const ValueId operand : graph.nodes()[i].operands) {
        if (!operand.valid() || !is_made[static_cast<size_t>(operand.index)]) continue;
        ++missing_[i];
        waiting_for_[static_cast<size_t>(operand.index)].push_back(i);
      }
    }
  }

  Graph run(const Graph& graph) {
    Rewriter r(graph);
    std::vector<size_t> at_once;  // those that read inputs and states alone
    for (size_t i = 0; i < missing_.size(); ++i) {
      if (early_[i] && missing_[i] == 0) at_once.push_back(i);
    }
    for (const size_t i : at_once) copy(r, i);
    for (size_t i = 0; i < missing_.size(); ++i) {
      if (!early_[i]) copy(r, i);
    }
    return r.finish();
  }

 private:
  void copy(Rewriter& r, size_t number) {
    const Node& node = r.old_graph().nodes()[number];
    r.copy(node);
    for (const ValueId result : node.results) {
      for (const size_t reader : waiting_for_[static_cast<size_t>(result.index)]) {
        if (--missing_[reader] == 0) copy(r, reader);
      }
    }
  }

  const std::vector<bool> early_;
  std::vector<std::vector<size_t>> waiting_for_;  // by value
  std::vector<int> missing_;                      // by node: operands that are not there yet
};

}  // namespace

void accumulate_early(Graph& graph) {
  std::vector<bool> early = find_accumulation(graph);
  if (std::none_of(early.begin(), early.end(), [](bool one) { return one; })) return;
  graph = EarlyCopies(graph, std::move(early)).run(graph);
}

}  // namespace tessera
