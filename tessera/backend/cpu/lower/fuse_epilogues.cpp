#include "tessera/backend/cpu/lower/fuse_epilogues.h"

#include <algorithm>
#include <optional>

#include "tessera/backend/cpu/kernels/contraction_map.h"
#include "tessera/backend/cpu/lower/fusion_groups.h"
#include "tessera/backend/cpu/lower/likely_use.h"
#include "tessera/ir/rewrite.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/contraction_map.h"
#include "tessera/ops/forms.h"
#include "tessera/ops/fused_body.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

// Smaller results stay in the first-level cache anyway.
constexpr int64_t least_bytes = 16 << 10;
// What may be made between the two while the contraction's operands are kept: small things.
constexpr int64_t small_share = 16;

// A contraction, perhaps with a body already, and the map to be joined to it.
struct Epilogue {
  const Node* contraction = nullptr;
  const Node* view = nullptr;  // that the map sees the result through: in another shape
  size_t operand = 0;          // which of the map's operands it is
};

class EpilogueFuser {
 public:
  EpilogueFuser(const Graph& graph, const Target& target)
      : graph_(graph), target_(target), uses_(count_uses(graph)) {
    epilogues_.resize(static_cast<size_t>(graph.node_count()));
    gone_.resize(epilogues_.size(), false);
    for (int32_t i = 0; i < graph.node_count(); ++i) {
      if (graph.node({i}).op == "map") add(i);
    }
  }

  bool found() const { return found_; }

  Graph fuse() const {
    Rewriter rewriter(graph_);
    for (int32_t i = 0; i < graph_.node_count(); ++i) {
      const Node& node = graph_.node({i});
      if (is_gone(node)) continue;
      const Epilogue& epilogue = epilogues_[static_cast<size_t>(i)];
      if (epilogue.contraction) {
        write(rewriter, node, epilogue);
      } else {
        rewriter.copy(node);
      }
    }
    return rewriter.finish();
  }

 private:
  size_t number_of(const Node& node) const {
    return static_cast<size_t>(&node - graph_.nodes().data());
  }
  bool is_gone(const Node& node) const { return gone_[number_of(node)]; }

  // The contraction that runs last is the one whose operands need not be kept for others.
  void add(int32_t at) {
    const Node& map = graph_.node({at});
    if (is_next_of_state(map)) return;
    std::optional<Epilogue> last;
    for (size_t i = 0; i < map.operands.size(); ++i) {
      const auto epilogue = epilogue_of(map, i);
      if (epilogue && (!last || epilogue->contraction > last->contraction)) last = epilogue;
    }
    if (!last || large_between(*last->contraction, map) || !has_kernel(map, *last)) return;
    epilogues_[static_cast<size_t>(at)] = *last;
    gone_[number_of(*last->contraction)] = true;
    if (last->view) gone_[number_of(*last->view)] = true;
    found_ = true;
  }

  // A state is accumulated in its own memory.
  bool is_next_of_state(const Node& map) const {
    const auto& states = graph_.states();
    return std::any_of(map.results.begin(), map.results.end(), [&](ValueId result) {
      return std::any_of(states.begin(), states.end(), [&](const State& state) {
        return state.after_micro_batch == result || state.after_update == result;
      });
    });
  }

  const Node* only_used_by_one(ValueId value) const {
    return uses_[static_cast<size_t>(value.index)] == 1 ? graph_.producer(value) : nullptr;
  }

  // The operand of a map as the result of a contraction that nothing else reads.
  std::optional<Epilogue> epilogue_of(const Node& map, size_t operand) const {
    Epilogue epilogue{.operand = operand};
    const Node* node = only_used_by_one(map.operands[operand]);
    if (node && op(*node).kind == Kind::view) {
      epilogue.view = node;
      node = shows_all(*node) ? only_used_by_one(node->operands[0]) : nullptr;
    }
    if (!node || is_gone(*node) || op(*node).kind != Kind::contraction) return std::nullopt;
    if (!contraction_of_map(op(*node)) && !map_of_contraction(op(*node))) return std::nullopt;
    epilogue.contraction = node;
    const bool alike = node->phase == map.phase && node->stage == map.stage &&
                       node->origin.backward == map.origin.backward;
    if (!alike || node->results.size() != 1) return std::nullopt;
    const TensorType& type = graph_.type(node->results[0]);
    if (type.dtype != DType::f32 || bytes(type) < least_bytes) return std::nullopt;
    const TensorType& seen = graph_.type(map.operands[operand]);
    const TensorType& first = graph_.type(map.results[0]);
    const bool floats = first.dtype == DType::f32 || first.dtype == DType::f16;
    if (!floats || first.shape != seen.shape) return std::nullopt;
    for (size_t i = 0; i < map.operands.size(); ++i) {
      if (epilogue.view && !shape_in(map.operands[i], seen.shape, type.shape)) return std::nullopt;
    }
    return epilogue;
  }

  bool shows_all(const Node& view) const {
    return same_elements(geometry_of_view(view), dense(graph_.type(view.results[0]).shape)) &&
           numel(graph_.type(view.results[0]).shape) == numel(graph_.type(view.operands[0]).shape);
  }

  // An operand of a map of shape `from`, in a shape with which it means the same in `to`: elements
  // in the same order, only their dimensions differ. All of it, one number, or a number for each
  // element of the last dimension.
  std::optional<Shape> shape_in(ValueId operand, const Shape& from, const Shape& to) const {
    const Shape& shape = graph_.type(operand).shape;
    if (shape == from) {
      const Node* producer = graph_.producer(operand);
      const bool strided = producer && op(*producer).kind == Kind::view && !shows_all(*producer);
      return strided ? std::nullopt : std::optional(to);
    }
    if (numel(shape) == 1) return Shape{};
    const bool per_column =
        shape.back() == from.back() && from.back() == to.back() && numel(shape) == shape.back();
    return per_column ? std::optional(Shape{to.back()}) : std::nullopt;
  }

  bool large_between(const Node& contraction, const Node& map) const {
    const int64_t own = bytes(graph_.type(contraction.results[0]));
    for (const Node* node = &contraction + 1; node < &map; ++node) {
      if (op(*node).kind == Kind::view) continue;
      for (const ValueId result : node->results) {
        if (bytes(graph_.type(result)) * small_share > own) return true;
      }
    }
    return false;
  }

  // --- the node of the two, in values of the old graph
  // ----------------------------------------------

  struct Joined {
    const OpDef* row;
    std::vector<ValueId> operands;  // with those of the body in the map's shape
    size_t body_begin;              // where those of the map begin
    Attrs attrs;
  };

  // Nothing where it would be too large.
  std::optional<Joined> joined(const Node& map, const Epilogue& epilogue) const {
    const Node& node = *epilogue.contraction;
    const OpDef* base = contraction_of_map(op(node));
    const OpDef& contraction = base ? *base : op(node);
    Joined one{map_of_contraction(contraction), node.operands, 0, node.attrs};
    one.operands.resize(std::max(node.operands.size(), operand_count(contraction)));
    one.body_begin = one.operands.size();
    FusedBody body = base ? node.attrs.body("body") : FusedBody{};
    const BodyValue result = base ? body.results[0].value : BodyValue{};
    const size_t before = body.steps.size();
    std::vector<BodyValue> values;  // by operand of the map
    for (size_t i = 0; i < map.operands.size(); ++i) {
      if (i == epilogue.operand) {
        values.push_back(result);
        continue;
      }
      one.operands.push_back(map.operands[i]);
      const size_t index = one.operands.size() - operand_count(contraction);
      values.push_back({BodyValue::From::operand, index});
    }
    const auto moved = [&](const BodyValue& value) {
      if (value.from == BodyValue::From::operand) return values[value.index];
      BodyValue to = value;
      if (value.from == BodyValue::From::step) to.index += before;
      return to;
    };
    FusedBody more = map.attrs.body("body");
    for (BodyStep& step : more.steps) {
      for (BodyValue& value : step.arguments) value = moved(value);
      body.steps.push_back(std::move(step));
    }
    for (BodyResult& one_result : more.results) one_result.value = moved(one_result.value);
    body.results = std::move(more.results);
    if (body.steps.size() > FusionGroups::most_steps) return std::nullopt;
    if (one.operands.size() - operand_count(contraction) + 1 > FusionGroups::most_operands) {
      return std::nullopt;
    }
    one.attrs.set("body", body_attr(std::move(body)));
    return one;
  }

  // Whether a kernel would go on with what lies in the cache.
  bool has_kernel(const Node& map, const Epilogue& epilogue) const {
    const auto one = joined(map, epilogue);
    if (!one) return false;
    const Shape& to = graph_.type(epilogue.contraction->results[0]).shape;
    const Shape& from = graph_.type(map.results[0]).shape;
    std::vector<KernelOperand> inputs, outputs;
    for (size_t i = 0; i < one->operands.size(); ++i) {
      const ValueId operand = one->operands[i];
      inputs.push_back(likely_operand(graph_, operand));
      if (!epilogue.view || i < one->body_begin) continue;
      inputs.back().geometry = dense(*shape_in(operand, from, to));
    }
    for (const ValueId result : map.results) {
      outputs.push_back({graph_.type(result).dtype, dense(to)});
    }
    const KernelUse use{*one->row, one->attrs, inputs, outputs, target_};
    return pays(likely_epilogue(use), use);
  }

  void write(Rewriter& rewriter, const Node& map, const Epilogue& epilogue) const {
    Builder builder(rewriter.new_graph());
    builder.set_place_of(*epilogue.contraction);
    Joined one = *joined(map, epilogue);
    const Shape& to = graph_.type(epilogue.contraction->results[0]).shape;
    const Shape& from = graph_.type(map.results[0]).shape;
    std::vector<ValueId> operands;
    for (size_t i = 0; i < one.operands.size(); ++i) {
      operands.push_back(rewriter.map(one.operands[i]));
      if (!epilogue.view || i < one.body_begin) continue;
      operands.back() = builder.reshape(operands.back(), *shape_in(one.operands[i], from, to));
    }
    const auto results = builder.add_all(one.row->name, std::move(operands), std::move(one.attrs));
    for (size_t i = 0; i < results.size(); ++i) {
      rewriter.replace(map.results[i],
                       epilogue.view ? builder.reshape(results[i], from) : results[i]);
    }
  }

  const Graph& graph_;
  const Target& target_;
  std::vector<int32_t> uses_;
  std::vector<Epilogue> epilogues_;  // by node: that of a map
  std::vector<bool> gone_;           // by node: part of another now
  bool found_ = false;
};

}  // namespace

// Map after map: one that sees the result in another shape was not fused with the one before it.
Graph fuse_epilogues(const Graph& graph, const Target& target) {
  Graph fused = graph;
  while (true) {
    const EpilogueFuser fuser(fused, target);
    if (!fuser.found()) return fused;
    fused = fuser.fuse();
  }
}

}  // namespace tessera::cpu
