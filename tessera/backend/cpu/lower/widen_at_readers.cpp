#include "tessera/backend/cpu/lower/widen_at_readers.h"

#include <algorithm>
#include <optional>

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/lower/likely_use.h"
#include "tessera/ir/rewrite.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/forms.h"
#include "tessera/ops/fused_body.h"
#include "tessera/ops/of_halves.h"
#include "tessera/ops/optimizer_parts.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

// Of shapes that can be fused whatever the layout.
constexpr size_t most_repeated_rank = 6;

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
  ReaderWidener(const Graph& graph, const Target& target)
      : graph_(graph),
        target_(target),
        kept_(kept_values(graph)),
        readers_(static_cast<size_t>(graph.value_count())),
        rounded_(static_cast<size_t>(graph.value_count())),
        shared_(static_cast<size_t>(graph.value_count())) {
    for (const Node& node : graph.nodes()) {
      for (const ValueId operand : node.operands) {
        if (operand.valid()) readers_[static_cast<size_t>(operand.index)].push_back(&node);
      }
    }
  }

  Graph widen() {
    return rewrite(graph_, [&](Rewriter& r, const Node& node) {
      const bool movable = is_widening(graph_, node) || is_view(node);
      if (movable && is_copied_to_readers(node.results[0])) return;
      if (!may_fuse(node)) ++calls_;
      if (is_scaled_by_update(node)) return;
      if (rounded_by_update(node)) return r.replace(node.results[0], r.map(node.operands[0]));
      if (reads_halves(node)) return read_halves(r, node);
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

  // Whether the node's kernel would widen halves while it reads them.
  bool reads_halves(const Node& node) const {
    if (!row_of_halves(op(node))) return false;
    bool any = false;
    for (const ValueId operand : node.operands) {
      if (!operand.valid() || !is_copied_to_readers(operand)) continue;
      if (!widens_as_it_lies(operand)) return false;
      any = true;
    }
    if (!any) return false;
    if (op(node).kind == Kind::update && !rounds_alike(node)) return false;
    std::vector<KernelOperand> inputs, outputs;
    for (const ValueId operand : node.operands) inputs.push_back(likely_operand(graph_, operand));
    for (const ValueId result : node.results) {
      outputs.push_back({graph_.type(result).dtype, dense(graph_.type(result).shape)});
    }
    return likely_reads_halves({op(node), node.attrs, inputs, outputs, target_});
  }

  // Whether the halves have the strides that the cast's result has: kernels that go by strides then
  // do the same with both.
  bool widens_as_it_lies(ValueId value) const {
    const Node* cast = graph_.producer(value);
    while (is_view(*cast)) cast = graph_.producer(cast->operands[0]);
    const Node* below = graph_.producer(cast->operands[0]);
    if (!below || !is_view(*below)) return true;
    const Shape& shape = graph_.type(cast->operands[0]).shape;
    return same_elements(from_first(geometry_of_view(*below)), dense(shape));
  }

  void read_halves(Rewriter& r, const Node& node) {
    const bool update = op(node).kind == Kind::update;
    std::vector<ValueId> operands;
    ValueId scale;
    for (const ValueId operand : node.operands) {
      const bool halves = operand.valid() && is_copied_to_readers(operand);
      const auto scaled = update ? scaled_gradient(node, operand) : std::nullopt;
      if (scaled) scale = r.map(scaled->scale);
      const ValueId base = scaled ? scaled->halves : operand;
      operands.push_back(halves || scaled ? view_of_halves(r, node, base) : r.map(operand));
    }
    Attrs attrs = node.attrs;
    if (update) attrs.set("keys", keys_of(node));
    if (scale.valid()) {
      operands.resize(operand_specs(op(node)).size());
      operands.push_back(scale);
    }
    Builder builder(r.new_graph());
    builder.set_place_of(node);
    const auto results =
        builder.add_all(row_of_halves(op(node))->name, std::move(operands), std::move(attrs));
    for (size_t i = 0; i < results.size(); ++i) {
      r.replace(node.results[i], results[i]);
      if (!update || builder.type(results[i]).dtype != DType::f16) continue;
      rounded_[static_cast<size_t>(node.results[i].index)] = true;
    }
  }

  // --- updates: what they make of halves is rounded to halves, and by them

  // The operand that a result of an update replaces.
  static size_t replaced_by(size_t result) {
    using namespace optimizer_parts;
    return result == 0 ? size_t{param} : result + 1;
  }

  struct Scaled {
    ValueId halves, scale;  // a cast of halves, and a number
  };

  // A gradient of an update that is halves times a number, for this update alone.
  std::optional<Scaled> scaled_gradient(const Node& update, ValueId value) const {
    if (!value.valid() || value != update.operands[optimizer_parts::grad]) return std::nullopt;
    const Node* node = graph_.producer(value);
    const bool own = readers_[static_cast<size_t>(value.index)].size() == 1 &&
                     !kept_[static_cast<size_t>(value.index)];
    if (!node || !own || node->op != "mul" || node->phase != update.phase) return std::nullopt;
    const auto& [a, b] = std::pair(node->operands[0], node->operands[1]);
    for (const auto& [halves, scale] : {std::pair(a, b), std::pair(b, a)}) {
      const bool number =
          graph_.type(scale) == TensorType{DType::f32, {}} && !is_copied_to_readers(scale);
      const bool same = graph_.type(halves).shape == graph_.type(value).shape;
      if (number && same && is_copied_to_readers(halves) && widens_as_it_lies(halves)) {
        return Scaled{halves, scale};
      }
    }
    return std::nullopt;
  }

  bool is_scaled_by_update(const Node& node) const {
    if (node.results.size() != 1) return false;
    const auto& readers = readers_[static_cast<size_t>(node.results[0].index)];
    if (readers.size() != 1 || op(*readers[0]).kind != Kind::update) return false;
    return scaled_gradient(*readers[0], node.results[0]) && reads_halves(*readers[0]);
  }

  // What rounds a result of an update, where nothing else reads it.
  const Node* rounding_of(ValueId result) const {
    const auto& readers = readers_[static_cast<size_t>(result.index)];
    if (readers.size() != 1 || kept_[static_cast<size_t>(result.index)]) return nullptr;
    const Node* reader = readers[0];
    const bool rounds =
        is_conversion(reader->op) && graph_.type(reader->results[0]).dtype == DType::f16;
    return rounds ? reader : nullptr;
  }

  // Each result of what was halves is rounded by one node, all of them in the same way.
  bool rounds_alike(const Node& update) const {
    const Node* first = nullptr;
    for (size_t i = 0; i < update.results.size(); ++i) {
      const size_t replaced = replaced_by(i);
      const bool scalar = replaced == optimizer_parts::step;
      if (scalar || replaced >= update.operands.size()) continue;
      if (!update.operands[replaced].valid() || !is_copied_to_readers(update.operands[replaced])) {
        continue;
      }
      const Node* rounding = rounding_of(update.results[i]);
      if (!rounding || (first && rounding->op != first->op)) return false;
      first = rounding;
    }
    return true;
  }

  std::vector<int64_t> keys_of(const Node& update) const {
    std::vector<int64_t> keys;
    for (size_t i = 0; i < update.results.size(); ++i) {
      const size_t replaced = replaced_by(i);
      if (replaced >= update.operands.size() || !update.operands[replaced].valid() ||
          !is_copied_to_readers(update.operands[replaced])) {
        continue;
      }
      const Node* rounding = rounding_of(update.results[i]);
      if (!is_cast(*rounding)) keys.push_back(rounding->attrs.integer("key"));
    }
    return keys;
  }

  bool rounded_by_update(const Node& node) const {
    return is_conversion(node.op) && rounded_[static_cast<size_t>(node.operands[0].index)];
  }

  // From here on, the value that is mapped is this reader's own.
  void give_own_casts(Rewriter& r, const Node& reader) {
    std::vector<ValueId> given;
    for (size_t i = 0; i < reader.operands.size(); ++i) {
      const ValueId operand = reader.operands[i];
      if (!operand.valid() || !is_copied_to_readers(operand)) continue;
      const auto uses = std::count(reader.operands.begin(), reader.operands.end(), operand);
      const std::vector<size_t>& shape_only = op(reader).traits.shape_only;
      const bool only_shape =
          std::find(shape_only.begin(), shape_only.end(), i) != shape_only.end();
      if (uses == 1 && only_shape) {
        r.replace(operand, zeros_like(r, reader, operand));
      } else {
        give(r, reader, operand, given);
      }
    }
  }

  // One zero, repeated.
  ValueId zeros_like(Rewriter& r, const Node& reader, ValueId value) const {
    Builder builder(r.new_graph());
    set_place(builder, reader, value);
    return builder.expand(builder.scalar(0, DType::f32), graph_.type(value).shape);
  }

  void give(Rewriter& r, const Node& reader, ValueId value, std::vector<ValueId>& given) {
    if (std::find(given.begin(), given.end(), value) != given.end()) return;
    given.push_back(value);
    if (share(r, reader, value)) return;
    if (is_repeated_in(reader, value)) {
      return r.replace(value, widened_and_repeated(r, reader, value));
    }
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

  // A smaller operand of a step, a bias for example, in the step's shape: so it can be one with it.
  // Not a single value, which some rows insist on.
  bool is_repeated_in(const Node& reader, ValueId value) const {
    if (!can_be_step(op(reader)) || reader.results.size() != 1) return false;
    const Shape& shape = graph_.type(reader.results[0]).shape;
    const int64_t own = numel(graph_.type(value).shape);
    return own > 1 && own < numel(shape) && shape.size() <= most_repeated_rank;
  }

  ValueId widened_and_repeated(Rewriter& r, const Node& reader, ValueId value) const {
    Builder builder(r.new_graph());
    set_place(builder, reader, value);
    const ValueId halves = view_of_halves(r, reader, value);
    const ValueId wide = builder.expand(halves, graph_.type(reader.results[0]).shape);
    return builder.cast(wide, DType::f32);
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
    Builder builder(r.new_graph());
    set_place(builder, reader, value);
    return builder.cast(view_of_halves(r, reader, value), DType::f32);
  }

  // What a cast, or views of one, would be without it.
  ValueId view_of_halves(Rewriter& r, const Node& reader, ValueId value) const {
    std::vector<const Node*> views;
    const Node* cast = graph_.producer(value);
    for (; is_view(*cast); cast = graph_.producer(cast->operands[0])) views.push_back(cast);
    Builder builder(r.new_graph());
    set_place(builder, reader, value);
    ValueId halves = r.map(cast->operands[0]);
    for (auto view = views.rbegin(); view != views.rend(); ++view) {
      halves = builder.add("view", {halves}, (*view)->attrs);
    }
    return halves;
  }

  // Where the reader stands, with the origin of the cast.
  void set_place(Builder& builder, const Node& reader, ValueId value) const {
    const Node* cast = graph_.producer(value);
    while (is_view(*cast)) cast = graph_.producer(cast->operands[0]);
    Origin origin = cast->origin;
    origin.backward = reader.origin.backward;
    builder.set_place(std::move(origin), reader.phase, reader.stage);
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
  const Target& target_;
  const std::vector<bool> kept_;
  std::vector<std::vector<const Node*>> readers_;  // by value
  std::vector<bool> rounded_;                      // by value: an update made halves of it
  std::vector<Shared> shared_;                     // by value
  int64_t calls_ = 0;
};

}  // namespace

bool is_widening(const Graph& graph, const Node& node) {
  return is_cast(node) && graph.type(node.operands[0]).dtype == DType::f16 &&
         graph.type(node.results[0]).dtype == DType::f32;
}

Graph widen_at_readers(const Graph& graph, const Target& target) {
  const auto any = [&](const Node& node) { return is_widening(graph, node); };
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), any)) return graph;
  return ReaderWidener(graph, target).widen();
}

}  // namespace tessera::cpu
