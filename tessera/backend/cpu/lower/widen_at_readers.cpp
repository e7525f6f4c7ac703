#include "tessera/backend/cpu/lower/widen_at_readers.h"

#include <algorithm>

#include "tessera/ir/rewrite.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/forms.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

// Values that are f32 for good: outputs and states, and what those are views of.
std::vector<bool> kept_values(const Graph& graph) {
  std::vector<bool> kept(static_cast<size_t>(graph.value_count()));
  const auto keep = [&](ValueId value) {
    for (const Node* node = nullptr; value.valid(); value = node->operands[0]) {
      kept[static_cast<size_t>(value.index)] = true;
      node = graph.producer(value);
      if (!node || !is_view(*node)) return;
    }
  };
  for (const Output& output : graph.outputs()) keep(output.value);
  for (const State& state : graph.states()) {
    keep(state.after_micro_batch);
    keep(state.after_update);
  }
  return kept;
}

class ReaderWidener {
 public:
  explicit ReaderWidener(const Graph& graph)
      : graph_(graph),
        kept_(kept_values(graph)),
        shared_(static_cast<size_t>(graph.value_count())) {}

  Graph widen() {
    return rewrite(graph_, [&](Rewriter& r, const Node& node) {
      const bool movable = is_widening(graph_, node) || is_view(node);
      if (movable && is_copied_to_readers(node.results[0])) return;
      if (!may_fuse(node)) ++calls_;
      give_own_casts(r, node);
      r.copy(node);
    });
  }

 private:
  // A value that a reader got which is a call of its own, whatever is fused.
  struct Shared {
    ValueId value;
    int64_t call = -1;  // how many such calls there were
    const Node* reader = nullptr;
  };

  static bool may_fuse(const Node& node) {
    const Kind kind = op(node).kind;
    return kind == Kind::elementwise || kind == Kind::reduction || kind == Kind::view ||
           kind == Kind::source;
  }

  // A widening cast, or views of one.
  bool is_copied_to_readers(ValueId value) const {
    const Node* node = graph_.producer(value);
    while (node && is_view(*node)) node = graph_.producer(node->operands[0]);
    return node && is_widening(graph_, *node) &&
           !kept_[static_cast<size_t>(node->results[0].index)];
  }

  // From here on, the value that is mapped is this reader's own.
  void give_own_casts(Rewriter& r, const Node& reader) {
    std::vector<ValueId> given;
    for (const ValueId operand : reader.operands) {
      if (!operand.valid() || !is_copied_to_readers(operand)) continue;
      give(r, reader, operand, given);
    }
  }

  void give(Rewriter& r, const Node& reader, ValueId value, std::vector<ValueId>& given) {
    if (std::find(given.begin(), given.end(), value) != given.end()) return;
    given.push_back(value);
    if (share(r, reader, value)) return;
    if (takes_views_of_halves(reader, value)) {
      return r.replace(value, widened_view(r, reader, value));
    }
    Node own = *graph_.producer(value);
    if (is_view(own)) give(r, reader, own.operands[0], given);
    own.phase = reader.phase;
    own.stage = reader.stage;
    own.origin.backward = reader.origin.backward;
    r.copy(own);
    if (!may_fuse(reader)) shared_of(value) = {r.map(value), calls_, &reader};
  }

  // What is repeated is widened again and again, which only an element-wise reader does anyway.
  bool takes_views_of_halves(const Node& reader, ValueId value) const {
    if (!may_fuse(reader)) return false;
    if (op(reader).kind == Kind::elementwise) return true;
    const Node* cast = graph_.producer(value);
    while (is_view(*cast)) cast = graph_.producer(cast->operands[0]);
    return numel(graph_.type(value).shape) <= numel(graph_.type(cast->results[0]).shape);
  }

  // A view of a cast as the cast of a view: in the shape that is read, it can be a step of what
  // reads it.
  ValueId widened_view(Rewriter& r, const Node& reader, ValueId value) const {
    std::vector<const Node*> views;
    const Node* cast = graph_.producer(value);
    for (; is_view(*cast); cast = graph_.producer(cast->operands[0])) views.push_back(cast);
    Builder builder(r.new_graph());
    Origin origin = cast->origin;
    origin.backward = reader.origin.backward;
    builder.set_place(std::move(origin), reader.phase, reader.stage);
    ValueId halves = r.map(cast->operands[0]);
    for (auto view = views.rbegin(); view != views.rend(); ++view) {
      halves = builder.add("view", {halves}, (*view)->attrs);
    }
    return builder.cast(halves, DType::f32);
  }

  // Two such calls after each other share what they read: the gradients of a layer's weights and of
  // its input, for example. Nothing is kept for long by that.
  bool share(Rewriter& r, const Node& reader, ValueId value) {
    Shared& shared = shared_of(value);
    if (may_fuse(reader) || shared.call < 0 || shared.call + 1 < calls_) return false;
    const Node& before = *shared.reader;
    if (before.phase != reader.phase || before.stage != reader.stage ||
        before.origin.backward != reader.origin.backward) {
      return false;
    }
    r.replace(value, shared.value);
    shared.call = calls_;
    return true;
  }

  Shared& shared_of(ValueId value) { return shared_[static_cast<size_t>(value.index)]; }

  const Graph& graph_;
  const std::vector<bool> kept_;
  std::vector<Shared> shared_;  // by value
  int64_t calls_ = 0;
};

}  // namespace

bool is_widening(const Graph& graph, const Node& node) {
  return is_cast(node) && graph.type(node.operands[0]).dtype == DType::f16 &&
         graph.type(node.results[0]).dtype == DType::f32;
}

Graph widen_at_readers(const Graph& graph) {
  const auto any = [&](const Node& node) { return is_widening(graph, node); };
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), any)) return graph;
  return ReaderWidener(graph).widen();
}

}  // namespace tessera::cpu
