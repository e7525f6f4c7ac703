// Chains of element-wise operators as one, and the sums they end in. The CPU's lowering makes them;
// the kernels here run the rows that the body names, and so give the same bits as the operators one
// after the other.
#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/ops/families.h"
#include "tessera/ops/fused_body.h"
#include "tessera/ops/fused_interpreter.h"
#include "tessera/ops/row_parts.h"

namespace tessera::families {
namespace {

using namespace row_parts;

std::vector<TensorType> operand_types(const OpView& op) {
  std::vector<TensorType> types;
  for (size_t i = 0; i < op.count(); ++i) {
    check(op.has(i), ErrorKind::value, "a fused operator needs all of its operands");
    types.push_back(op.type(i));
  }
  return types;
}

std::vector<TensorType> infer_fused(const OpView& op) {
  return result_types(op.attrs().body("body"), operand_types(op));
}

std::vector<TensorType> infer_map(const OpView& op) {
  const FusedBody& body = op.attrs().body("body");
  check(std::none_of(body.results.begin(), body.results.end(),
                     [](const BodyResult& result) { return result.summed; }),
        ErrorKind::value, "map has no sums; map_reduce has");
  return result_types(body, operand_types(op));
}

// The price of the steps; a sum costs one more for each element.
Cost fused_cost(const OpView& op, std::span<const TensorType>) {
  const FusedBody& body = op.attrs().body("body");
  const auto operands = operand_types(op);
  Shape shape;
  for (const TensorType& operand : operands) shape = broadcast(shape, operand.shape);
  double flops = 0;
  for (const BodyStep& step : body.steps) flops += flops_per_element(step);
  for (const BodyResult& result : body.results) flops += result.summed ? 1 : 0;
  return ElementwiseCost{numel(shape), flops};
}

// Made ready for every call: the CPU's kernels keep what they have made ready.
void run_fused(const KernelCall& call) {
  std::vector<Geometry> operands;
  for (const TensorView& operand : call.inputs) {
    operands.push_back({{operand.sizes.begin(), operand.sizes.end()},
                        {operand.strides.begin(), operand.strides.end()}});
  }
  const FusedInterpreter interpreter(call.attrs.body("body"), operands);
  std::vector<std::byte> workspace(static_cast<size_t>(interpreter.workspace_bytes()));
  interpreter.run(call, workspace);
}

Attrs body_of(std::string_view text) { return {{"body", body_attr(parse_body(text))}}; }

std::vector<Sample> map_samples() {
  return {
      {{reals({2, 3}), reals({3})}, body_of("%0 = add(a0, a1); %1 = relu(%0); out %1")},
      {{reals({4, 6, 5, 7}), reals({6, 1, 1}), reals({6, 1, 1}), reals({4, 6, 5, 7})},
       body_of(
           "%0 = mul(a0, a1); %1 = add(%0, a2) {alpha = -1.0}; %2 = add(%1, a3); %3 = relu(%2); "
           "out %3")},
      {{reals({17, 1003}), reals({17, 1003})},
       body_of(
           "%0 = gt(a0, 0.25) : bool; %1 = where(%0, a0, a1); %2 = mul(%1, 2.0); out %2, %1, %0")},
      {{reals({300, 33}), booleans({300, 33})},
       body_of("%0 = cast(a1) {dtype = f32}; %1 = mul(a0, %0); %2 = pow(%1, 2.0); out %2")},
      {{integers({9, 5}), integers({5})},
       body_of("%0 = mul(a0, a1) : i32; %1 = clamp(%0) {max = 3.0} : i32; out %1")},
      {{reals({}), reals({})},
       body_of("%0 = gelu(a0) {approximate = \"tanh\"}; %1 = sub(%0, a1); out %1")}};
}

std::vector<Sample> map_reduce_samples() {
  return {
      {{reals({3, 4, 5, 6}), reals({3, 4, 5, 6}), reals({4, 1, 1})},
       body_of(
           "%0 = threshold_backward(a0, a1); %1 = sub(a1, a2); %2 = mul(%0, %1); out sum %0 over "
           "[0, 2, 3], sum %2 over [0, 2, 3]")},
      {{reals({70, 129})}, body_of("%0 = exp(a0); out %0, sum %0 over [1] keepdim")},
      {{reals({19, 40})}, body_of("out sum a0 over [0]")},
      {{reals({5, 7}), reals({5, 7})},
       body_of(
           "%0 = gt(a0, a1) : bool; %1 = mul(a0, a1); out sum %0 over [], sum %1 over [], %1")}};
}

// Every result may lie over every operand: a piece is stored when all of it was read.
std::vector<std::pair<size_t, size_t>> any_in_place() {
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t result = 0; result < 8; ++result) {
    for (size_t operand = 0; operand < 16; ++operand) pairs.emplace_back(result, operand);
  }
  return pairs;
}

}  // namespace

std::span<const OpDef> fused() {
  static const std::vector<OpDef> rows = {
      {.name = "map",
       .operands = "operands*",
       .results = "results*",
       .doc = "element-wise operators one after the other, as `body` says",
       .kind = Kind::elementwise,
       .attrs = {body("body")},
       .traits = {.in_place = any_in_place()},
       .infer = infer_map,
       .cost = fused_cost,
       .cpu = run_fused,
       .samples = map_samples()},
      {.name = "map_reduce",
       .operands = "operands*",
       .results = "results*",
       .doc = "the same, and sums of its values",
       .kind = Kind::reduction,
       .attrs = {body("body")},
       .infer = infer_fused,
       .cost = fused_cost,
       .cpu = run_fused,
       .samples = map_reduce_samples()},
  };
  return rows;
}

}  // namespace tessera::families
