#include "tessera/backend/cpu/lower/recompute.h"

#include <algorithm>
#include <map>

#include "tessera/ir/rewrite.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

// Smaller values are not worth a call.
constexpr int64_t worth_it = 1 << 20;
// Operands that are small beside the value may be kept for it.
constexpr int64_t small_share = 16;

// When the memory of a value is needed; views share the memory of what they show.
struct Life {
  int32_t made = -1;          // by which node; -1: before the first
  int32_t last_forward = -1;  // the last reader of the forward pass
  int32_t first_backward = -1, last = -1;
  bool kept = false;             // a state, an input, an output: not ours to shorten
  bool viewed_backward = false;  // the backward pass reads a view of it
};

class Lives {
 public:
  explicit Lives(const Graph& graph)
      : graph_(graph), lives_(static_cast<size_t>(graph.value_count())) {
    for (int32_t i = 0; i < graph.node_count(); ++i) {
      const Node& node = graph.node({i});
      for (const ValueId result : node.results) of(result).made = i;
      for (const ValueId operand : node.operands) {
        if (operand.valid()) read(operand, node, i);
      }
    }
    const auto keep = [&](ValueId value) { of(root(value)).kept = true; };
    for (const Input& input : graph.inputs()) keep(input.value);
    for (const Output& output : graph.outputs()) keep(output.value);
    for (const State& state : graph.states()) {
      keep(state.initial);
      keep(state.after_micro_batch);
      keep(state.after_update);
    }
  }

  ValueId root(ValueId value) const {
    const Node* producer = graph_.producer(value);
    while (producer && op(*producer).kind == Kind::view) {
      value = producer->operands[0];
      producer = graph_.producer(value);
    }
    return value;
  }

  Life& of(ValueId value) { return lives_[static_cast<size_t>(value.index)]; }
  const Life& of(ValueId value) const { return lives_[static_cast<size_t>(value.index)]; }

  // The node while which most memory is alive.
  int32_t peak() const {
    std::vector<int64_t> change(static_cast<size_t>(graph_.node_count()) + 1, 0);
    for (int32_t i = 0; i < graph_.value_count(); ++i) {
      const Life& life = of({i});
      const Node* producer = graph_.producer({i});
      if (life.kept || !producer || op(*producer).kind == Kind::view || life.last < 0) continue;
      const int64_t size = bytes(graph_.type({i}));
      change[static_cast<size_t>(life.made)] += size;
      change[static_cast<size_t>(life.last) + 1] -= size;
    }
    int64_t alive = 0, most = 0;
    int32_t at = 0;
    for (size_t i = 0; i < change.size(); ++i) {
      alive += change[i];
      if (alive <= most) continue;
      most = alive;
      at = static_cast<int32_t>(i);
    }
    return at;
  }

 private:
  void read(ValueId value, const Node& reader, int32_t at) {
    if (op(reader).kind == Kind::view) return;
    Life& life = of(root(value));
    life.last = at;
    const bool later = reader.origin.backward || reader.phase == Phase::update;
    if (!later) life.last_forward = at;
    if (!later) return;
    if (life.first_backward < 0) life.first_backward = at;
    if (root(value) != value) life.viewed_backward = true;
  }

  const Graph& graph_;
  std::vector<Life> lives_;
};

class Chooser {
 public:
  explicit Chooser(const Graph& graph) : graph_(graph), lives_(graph), peak_(lives_.peak()) {}

  // The values to make again, by the node that is the first to read the new one.
  std::map<int32_t, std::vector<NodeId>> choose() {
    std::map<int32_t, std::vector<NodeId>> chosen;
    for (int32_t i = 0; i < graph_.node_count(); ++i) {
      const Node& node = graph_.node({i});
      if (!is_candidate(node)) continue;
      Life& life = lives_.of(node.results[0]);
      if (life.kept || life.viewed_backward) continue;
      if (life.first_backward < 0 || life.last_forward < 0) continue;
      const bool spans_peak = life.last_forward < peak_ && peak_ < life.first_backward;
      if (!spans_peak || !operands_are_alive(node, life.first_backward)) continue;
      chosen[life.first_backward].push_back({i});
      life.last = life.last_forward;  // for those that would be made of it
    }
    return chosen;
  }

 private:
  bool is_candidate(const Node& node) const {
    return op(node).kind == Kind::elementwise && node.phase == Phase::micro_batch &&
           !node.origin.backward && node.results.size() == 1 &&
           bytes(graph_.type(node.results[0])) >= worth_it;
  }

  bool operands_are_alive(const Node& node, int32_t at) const {
    const int64_t size = bytes(graph_.type(node.results[0]));
    return std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId operand) {
      if (!operand.valid()) return true;
      const ValueId root = lives_.root(operand);
      const Life& life = lives_.of(root);
      // A state may have its next value by then.
      const bool state =
          std::any_of(graph_.states().begin(), graph_.states().end(), [&](const State& one) {
            return one.initial == root && one.after_micro_batch != one.initial;
          });
      if (state) return false;
      return life.kept || life.last >= at || bytes(graph_.type(root)) * small_share <= size;
    });
  }

  const Graph& graph_;
  Lives lives_;
  int32_t peak_;
};

}  // namespace

Graph recompute_cheap_values(const Graph& graph) {
  auto chosen = Chooser(graph).choose();
  if (chosen.empty()) return graph;
  Rewriter rewriter(graph);
  for (int32_t i = 0; i < graph.node_count(); ++i) {
    const Node& reader = graph.node({i});
    for (const NodeId id : chosen[i]) {
      // From here on, which is in the backward pass, everybody reads the new one.
      Node again = graph.node(id);
      again.origin.backward = true;
      rewriter.copy(again);
    }
    rewriter.copy(reader);
  }
  return rewriter.finish();
}

}  // namespace tessera::cpu
