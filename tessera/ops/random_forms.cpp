// Operators that are random numbers and arithmetic: a leaky relu of random slope, normal numbers
// around means that are tensors.
#include "tessera/base/error.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/families.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

Cost cost_of_drawing(const OpView&, std::span<const TensorType> results) {
  return ElementwiseCost{numel(results[0].shape), 20};
}

// ---- rrelu: the noise holds the slope of each element, 1 above 0

double mean_slope(const Attrs& attrs) {
  return (attrs.number("lower") + attrs.number("upper")) / 2;
}

std::vector<TensorType> infer_rrelu(const OpView& op) {
  check(is_floating(op.type(0).dtype), ErrorKind::type, "rrelu: wanted floating point, got {}",
        name_of(op.type(0).dtype));
  check(op.attrs().number("lower") <= op.attrs().number("upper"), ErrorKind::value,
        "rrelu: the lower slope {} is above the upper {}", op.attrs().number("lower"),
        op.attrs().number("upper"));
  OperandChecks(op, "rrelu").floating(1, "the noise", op.shape(0));
  return {op.type(0), op.type(1)};
}

std::vector<ValueId> decompose_rrelu(Builder& b, const Node& node) {
  const ValueId x = node.operands[0];
  const DType dtype = b.type(x).dtype;
  if (!node.attrs.flag("training")) {
    return {b.add("leaky_relu", {x}, {{"negative_slope", mean_slope(node.attrs)}}),
            node.operands[1]};
  }
  const ValueId drawn = b.add("uniform", {x},
                              {{"from", node.attrs.number("lower")},
                               {"to", node.attrs.number("upper")},
                               {"key", node.attrs.integer("key")}});
  const ValueId below = b.add("le", {x, b.scalar(0, dtype)});
  const ValueId slope = b.add("where", {below, drawn, b.scalar(1, dtype)});
  return {b.add("mul", {x, slope}), b.reshape(slope, b.shape(node.operands[1]))};
}

std::vector<TensorType> infer_rrelu_backward(const OpView& op) {
  const OperandChecks operands(op, "rrelu");
  operands.floating(0, "the gradient", op.shape(1));
  operands.floating(1, "the input");
  operands.floating(2, "the noise", op.shape(1));
  return {op.type(1)};
}

std::vector<ValueId> decompose_rrelu_backward(Builder& b, const Node& node) {
  const ValueId grad = node.operands[0];
  const bool random =
      node.attrs.flag("training") && node.attrs.number("upper") - node.attrs.number("lower") > 1e-6;
  if (random) return {b.add("mul", {grad, node.operands[2]})};
  return {b.add("leaky_relu_backward", {grad, node.operands[1]},
                {{"negative_slope", mean_slope(node.attrs)},
                 {"self_is_result", node.attrs.flag("self_is_result")}})};
}

// ---- normal

std::vector<TensorType> infer_normal(const OpView& op) {
  const DType dtype = op.type(0).dtype;
  check(is_floating(dtype), ErrorKind::type, "normal: wanted floating point, got {}",
        name_of(dtype));
  return {{dtype, broadcast(op.shape(0), op.shape(1))}};
}

std::vector<ValueId> decompose_normal(Builder& b, const Node& node) {
  const ValueId mean = node.operands[0];
  const ValueId deviation =
      b.add("require", {node.operands[1]},
            {{"low", 0.0}, {"too_low", std::string("normal expects all elements of std >= 0.0")}});
  const Shape shape = broadcast(b.shape(mean), b.shape(deviation));
  const ValueId drawn =
      b.add("normal", {b.expand(mean, shape)}, {{"key", node.attrs.integer("key")}});
  return {b.add("add", {mean, b.add("mul", {drawn, deviation})})};
}

std::vector<OpDef> make_rows() {
  const AttrSchema slopes = {number("lower", 0.125), number("upper", 1.0 / 3),
                             flag("training", false)};
  const AttrSpec key = large(integer("key", 0));
  return {
      {.name = "rrelu_with_noise",
       .operands = "self, noise",
       .results = "out, noise",
       .doc = "x above 0, x times a random slope below; the slopes are the new noise.",
       .kind = Kind::composite,
       .attrs = joined(slopes, {key}),
       .aten = {{"rrelu_with_noise", "self, noise | lower, upper, training", "noise=1"}},
       .traits = {.reads_random_state = true},
       .infer = infer_rrelu,
       .cost = cost_of_drawing,
       .decompose = decompose_rrelu,
       .samples = {Sample{{reals({3, 5}), reals({3, 5})}, {{"training", true}}},
                   Sample{{reals({3, 5}), reals({3, 5})}}}},
      {.name = "rrelu_with_noise_backward",
       .operands = "grad_output, self, noise",
       .results = "grad_input",
       .doc = "Gradient of rrelu_with_noise.",
       .kind = Kind::composite,
       .attrs = joined(slopes, {flag("self_is_result", false)}),
       .aten = {{"rrelu_with_noise_backward",
                 "grad_output, self, noise | lower, upper, training, self_is_result"}},
       .infer = infer_rrelu_backward,
       .cost = cost_of_drawing,
       .decompose = decompose_rrelu_backward,
       .samples = {Sample{{reals({3, 5}), reals({3, 5}), reals({3, 5}, {0.1, 0.4})},
                          {{"training", true}}},
                   Sample{{reals({3, 5}), reals({3, 5}), reals({3, 5})}}}},
      {.name = "normal_around",
       .operands = "mean, std",
       .results = "out",
       .doc = "Normal numbers with a mean and a deviation for each element.",
       .kind = Kind::composite,
       .attrs = {key},
       .aten = {{"normal.Tensor_Tensor", "mean, std"},
                {"normal.Tensor_float", "mean, std"},
                {"normal.float_Tensor", "mean, std"}},
       .traits = {.promotion = Promotion::floating, .reads_random_state = true},
       .infer = infer_normal,
       .cost = cost_of_drawing,
       .decompose = decompose_normal,
       .samples = {Sample{{reals({3, 5}), reals({5}, {0.5, 2})}},
                   Sample{{reals({4}), reals({}, {0.5, 2})}}}},
  };
}

}  // namespace

std::span<const OpDef> families::random_forms() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
