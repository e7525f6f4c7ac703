#include "tessera/passes/compute_in_single.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ir/rewrite.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/forms.h"
#include "tessera/ops/host_call.h"
#include "tessera/ops/partials.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

bool is_half(const Graph& graph, ValueId value) {
  return value.valid() && graph.type(value).dtype == DType::f16;
}

bool sees_halves(const Graph& graph, const Node& node) {
  const auto half = [&](ValueId value) { return is_half(graph, value); };
  return std::any_of(node.operands.begin(), node.operands.end(), half) ||
         std::any_of(node.results.begin(), node.results.end(), half);
}

// Attributes that name an element type ask for that of the results.
Attrs in_single(const Node& node) {
  Attrs attrs = node.attrs;
  for (const auto& [name, value] : node.attrs) {
    const auto* dtype = std::get_if<DType>(&value);
    if (dtype && *dtype == DType::f16) attrs.set(name, DType::f32);
  }
  return op(node).kind == Kind::host ? host_call_in_single(attrs) : attrs;
}

class ComputeInSingle {
 public:
  explicit ComputeInSingle(const HalfArithmetic& halves) : halves_(halves) {}

  void visit(Rewriter& r, const Node& node) {
    const bool rounds = is_cast(node) && by_chance();
    if (!sees_halves(r.old_graph(), node) || (takes_halves(op(node)) && !rounds)) {
      return r.copy(node);
    }
    const ErrorContext where("computing {} in f32", print_node(r.old_graph(), node));
    Builder builder(r.new_graph());
    builder.set_place_of(node);
    if (is_cast(node)) {
      const DType to = r.old_graph().type(node.results[0]).dtype;
      return r.replace(node.results[0], cast(builder, r.map(node.operands[0]), to));
    }
    std::vector<ValueId> operands = r.map(node.operands);
    for (ValueId& operand : operands) {
      if (is_half(r.new_graph(), operand)) operand = builder.cast(operand, DType::f32);
    }
    Attrs attrs = in_single(node);
    if (has_partials(op(node))) choose_partials(r.old_graph(), node, attrs);
    const std::vector<ValueId> results =
        builder.add_all(node.op, std::move(operands), std::move(attrs));
    TESSERA_INVARIANT(results.size() == node.results.size(), "{} results became {}",
                      node.results.size(), results.size());
    for (size_t i = 0; i < results.size(); ++i) {
      const TensorType wanted = r.old_graph().type(node.results[i]);
      const ValueId result = cast(builder, results[i], wanted.dtype);
      TESSERA_INVARIANT(builder.type(result) == wanted, "result {} became {}", i,
                        to_string(builder.type(result)));
      r.replace(node.results[i], result);
    }
  }

 private:
  bool by_chance() const { return halves_.rounding == Rounding::stochastic; }

  // Operands of a contraction are of one type.
  void choose_partials(const Graph& graph, const Node& node, Attrs& attrs) {
    const DType otherwise =
        is_convolution(graph, node) ? halves_.convolution_partials : halves_.matmul_partials;
    leave_out_partials(attrs);
    if (partials_type(node.attrs).value_or(otherwise) != DType::f16) return;
    set_partials(attrs, DType::f16, by_chance() ? std::optional(next_key_) : std::nullopt);
    next_key_ += rounding_keys_of_node;
  }

  ValueId cast(Builder& builder, ValueId value, DType to) {
    if (to != DType::f16 || !by_chance()) return builder.cast(value, to);
    if (builder.type(value).dtype == DType::f16) return value;
    return builder.add("stochastic_cast", {builder.cast(value, DType::f32)},
                       {{"key", next_key_++}});
  }

  const HalfArithmetic halves_;
  int64_t next_key_ = 0;
};

}  // namespace

void compute_in_single(Graph& graph, const HalfArithmetic& halves) {
  ComputeInSingle pass(halves);
  graph = rewrite(graph, [&](Rewriter& r, const Node& node) { pass.visit(r, node); });
}

}  // namespace tessera
