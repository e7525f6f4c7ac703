#include "tessera/backend/cpu/lower/round_at_contractions.h"

#include <algorithm>
#include <optional>

#include "tessera/backend/cpu/kernels/contraction_map.h"
#include "tessera/backend/cpu/lower/likely_use.h"
#include "tessera/ir/rewrite.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/contraction_map.h"
#include "tessera/ops/forms.h"
#include "tessera/ops/fused_body.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

using From = BodyValue::From;

// The one step that reads an operand of a body.
std::optional<size_t> only_step_of(const FusedBody& body, size_t operand) {
  const BodyValue wanted{From::operand, operand};
  std::optional<size_t> found;
  for (size_t i = 0; i < body.steps.size(); ++i) {
    for (const BodyValue& argument : body.steps[i].arguments) {
      if (argument != wanted) continue;
      if (found) return std::nullopt;
      found = i;
    }
  }
  for (const BodyResult& result : body.results) {
    if (result.value == wanted) return std::nullopt;
  }
  return found;
}

// The body with the operand in the place of a step.
FusedBody without_step(FusedBody body, size_t step, size_t operand) {
  const auto moved = [&](BodyValue& value) {
    if (value.from != From::step) return;
    if (value.index == step) {
      value = {From::operand, operand};
    } else if (value.index > step) {
      --value.index;
    }
  };
  body.steps.erase(body.steps.begin() + static_cast<int64_t>(step));
  for (BodyStep& one : body.steps) std::for_each(one.arguments.begin(), one.arguments.end(), moved);
  for (BodyResult& result : body.results) moved(result.value);
  return body;
}

class Rounder {
 public:
  Rounder(const Graph& graph, const Target& target)
      : graph_(graph), target_(target), uses_(count_uses(graph)) {
    bodies_.resize(static_cast<size_t>(graph.node_count()));
    rounded_.resize(static_cast<size_t>(graph.value_count()));
    for (int32_t i = 0; i < graph.node_count(); ++i) {
      const Node& node = graph.node({i});
      if (node.op == "map" || node.op == "map_reduce") add(i);
    }
  }

  bool found() const { return found_; }

  Graph write() {
    return rewrite(graph_, [&](Rewriter& r, const Node& node) {
      const auto& body = bodies_[static_cast<size_t>(&node - graph_.nodes().data())];
      const bool rounds = node.results.size() == 1 && body_of(node.results[0]);
      if (rounds) return write_contraction(r, node);
      if (body) return write_reader(r, node, *body);
      r.copy(node);
    });
  }

 private:
  const std::optional<FusedBody>& body_of(ValueId result) const {
    return rounded_[static_cast<size_t>(result.index)];
  }

  void add(int32_t at) {
    const Node& reader = graph_.node({at});
    FusedBody body = reader.attrs.body("body");
    for (size_t i = 0; i < reader.operands.size(); ++i) {
      const auto step = only_step_of(body, i);
      if (!step || !is_conversion(body.steps[*step].op)) continue;
      if (body.steps[*step].dtype != DType::f16) continue;
      BodyStep rounding = body.steps[*step];
      rounding.arguments = {{From::operand, 0}};
      FusedBody own{{std::move(rounding)}, {{{From::step, 0}}}};
      if (!rounds_itself(reader, reader.operands[i], own)) continue;
      rounded_[static_cast<size_t>(reader.operands[i].index)] = std::move(own);
      body = without_step(std::move(body), *step, i);
      bodies_[static_cast<size_t>(at)] = body;
      found_ = true;
    }
  }

  Shape shape_of(const Node& reader) const {
    Shape shape;
    for (const ValueId operand : reader.operands) {
      shape = broadcast(shape, graph_.type(operand).shape);
    }
    return shape;
  }

  // Whether the value is a contraction's, for this reader alone, whose kernel rounds in its rooms.
  bool rounds_itself(const Node& reader, ValueId value, const FusedBody& body) const {
    const Node* node = graph_.producer(value);
    if (!node || uses_[static_cast<size_t>(value.index)] != 1) return false;
    const OpDef* row = map_of_contraction(op(*node));
    if (op(*node).kind != Kind::contraction || !row || node->results.size() != 1) return false;
    const TensorType& type = graph_.type(value);
    if (type.dtype != DType::f32 || type.shape != shape_of(reader)) return false;
    std::vector<KernelOperand> inputs;
    for (const ValueId operand : operands_of(*node)) {
      inputs.push_back(likely_operand(graph_, operand));
    }
    const KernelOperand output{DType::f16, dense(type.shape)};
    const Attrs attrs = attrs_with(*node, body);
    const KernelUse use{*row, attrs, inputs, {&output, 1}, target_};
    return pays(likely_epilogue(use), use);
  }

  // All that the contraction may have, some perhaps left out.
  static std::vector<ValueId> operands_of(const Node& contraction) {
    std::vector<ValueId> operands = contraction.operands;
    operands.resize(std::max(operands.size(), operand_count(op(contraction))));
    return operands;
  }

  static Attrs attrs_with(const Node& contraction, const FusedBody& body) {
    Attrs attrs = contraction.attrs;
    attrs.set("body", body_attr(body));
    return attrs;
  }

  void write_contraction(Rewriter& r, const Node& node) const {
    Builder builder(r.new_graph());
    builder.set_place_of(node);
    const std::string_view row = map_of_contraction(op(node))->name;
    r.replace(node.results[0], builder.add(row, r.map(operands_of(node)),
                                           attrs_with(node, *body_of(node.results[0]))));
  }

  // Results that are operands now were the contractions' own.
  static void write_reader(Rewriter& r, const Node& node, FusedBody body) {
    std::vector<ValueId> left;
    std::vector<BodyResult> results;
    for (size_t i = 0; i < node.results.size(); ++i) {
      const BodyResult& result = body.results[i];
      if (!result.summed && result.value.from == From::operand) {
        r.replace(node.results[i], r.map(node.operands[result.value.index]));
        continue;
      }
      left.push_back(node.results[i]);
      results.push_back(result);
    }
    if (left.empty()) return;
    body.results = std::move(results);
    Builder builder(r.new_graph());
    builder.set_place_of(node);
    const auto made = builder.add_all(node.op, r.map(node.operands), {{"body", body_attr(body)}});
    for (size_t i = 0; i < made.size(); ++i) r.replace(left[i], made[i]);
  }

  const Graph& graph_;
  const Target& target_;
  std::vector<int32_t> uses_;
  std::vector<std::optional<FusedBody>> bodies_;   // by node: of a reader of halves
  std::vector<std::optional<FusedBody>> rounded_;  // by value: what a contraction goes on with
  bool found_ = false;
};

}  // namespace

Graph round_at_contractions(const Graph& graph, const Target& target) {
  Rounder rounder(graph, target);
  return rounder.found() ? rounder.write() : graph;
}

}  // namespace tessera::cpu
