#include "tessera/passes/compute_in_single.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ir/rewrite.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/forms.h"
#include "tessera/ops/host_call.h"
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
  explicit ComputeInSingle(Rounding rounding) : rounding_(rounding) {}

  void visit(Rewriter& r, const Node& node) {
    const bool rounds = is_cast(node) && rounding_ == Rounding::stochastic;
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
    const std::vector<ValueId> results =
        builder.add_all(node.op, std::move(operands), in_single(node));
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
  ValueId cast(Builder& builder, ValueId value, DType to) {
    if (to != DType::f16 || rounding_ == Rounding::nearest) return builder.cast(value, to);
    if (builder.type(value).dtype == DType::f16) return value;
    return builder.add("stochastic_cast", {builder.cast(value, DType::f32)},
                       {{"key", next_key_++}});
  }

  const Rounding rounding_;
  int64_t next_key_ = 0;
};

}  // namespace

void compute_in_single(Graph& graph, Rounding rounding) {
  ComputeInSingle pass(rounding);
  graph = rewrite(graph, [&](Rewriter& r, const Node& node) { pass.visit(r, node); });
}

}  // namespace tessera
