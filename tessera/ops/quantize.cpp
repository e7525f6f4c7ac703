// Fake quantisation: floats rounded to what an integer grid can hold, and where the grid reached.
#include "tessera/base/error.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/families.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

void check_grid(const OpView& op) {
  check(is_floating(op.type(0).dtype), ErrorKind::type,
        "fake_quantize: wanted floating point, got {}", name_of(op.type(0).dtype));
  check(op.attrs().integer("quant_min") <= op.attrs().integer("quant_max"), ErrorKind::value,
        "fake_quantize: quant_min {} is above quant_max {}", op.attrs().integer("quant_min"),
        op.attrs().integer("quant_max"));
}

std::vector<TensorType> infer_quantize(const OpView& op) {
  check_grid(op);
  return {op.type(0), {DType::boolean, op.shape(0)}};
}

std::vector<TensorType> infer_by_channel(const OpView& op) {
  check_grid(op);
  const auto rank = static_cast<int64_t>(op.shape(0).size());
  const auto axis = static_cast<size_t>(wrap_dim(op.attrs().integer("axis"), rank));
  for (const size_t i : {size_t{1}, size_t{2}}) {
    check(rank > 0 && op.shape(i) == Shape{op.shape(0)[axis]},
          "fake_quantize: wanted a scale and a zero point for each channel of shape {}, got {}",
          to_string(op.shape(0)), to_string(op.shape(i)));
  }
  return {op.type(0), {DType::boolean, op.shape(0)}};
}

Cost cost_of_rounding(const OpView& op, std::span<const TensorType>) {
  return ElementwiseCost{numel(op.shape(0)), 8};
}

std::vector<ValueId> quantized(Builder& b, ValueId x, ValueId scale, ValueId zero,
                               const Attrs& attrs) {
  const DType dtype = b.type(x).dtype;
  const auto low = static_cast<double>(attrs.integer("quant_min"));
  const auto high = static_cast<double>(attrs.integer("quant_max"));
  const ValueId inverse = b.add("reciprocal", {scale});
  const ValueId steps = b.add("round", {b.add("mul", {x, inverse})});
  const ValueId place = b.add("add", {steps, zero});
  const ValueId inside = b.add("clamp", {place}, {{"min", low}, {"max", high}});
  const ValueId value = b.add("mul", {b.add("sub", {inside, zero}), scale});
  const ValueId mask = b.add("logical_and", {b.add("ge", {place, b.scalar(low, dtype)}),
                                             b.add("le", {place, b.scalar(high, dtype)})});
  return {value, mask};
}

std::vector<ValueId> decompose_by_number(Builder& b, const Node& node) {
  const ValueId x = node.operands[0];
  const DType dtype = b.type(x).dtype;
  return quantized(b, x, b.scalar(node.attrs.number("scale"), dtype),
                   b.scalar(static_cast<double>(node.attrs.integer("zero_point")), dtype),
                   node.attrs);
}

std::vector<ValueId> decompose_by_tensor(Builder& b, const Node& node) {
  const ValueId x = node.operands[0];
  const DType dtype = b.type(x).dtype;
  const ValueId scale = b.reshape(b.cast(node.operands[1], dtype), {});
  const ValueId zero = b.reshape(b.cast(node.operands[2], dtype), {});
  const auto parts = quantized(b, x, scale, zero, node.attrs);
  // Switched off by data: everything stays as it is.
  const ValueId enabled = b.cast(b.reshape(node.operands[3], {}), DType::boolean);
  const ValueId disabled = b.add("logical_not", {enabled});
  return {b.add("where", {enabled, parts[0], x}), b.add("logical_or", {parts[1], disabled})};
}

std::vector<TensorType> infer_by_tensor(const OpView& op) {
  for (const size_t i : {size_t{1}, size_t{2}, size_t{3}}) {
    check(numel(op.shape(i)) == 1, "fake_quantize: wanted a single number, got shape {}",
          to_string(op.shape(i)));
  }
  return infer_quantize(op);
}

std::vector<ValueId> decompose_by_channel(Builder& b, const Node& node) {
  const ValueId x = node.operands[0];
  const DType dtype = b.type(x).dtype;
  const Shape shape = b.shape(x);
  const auto axis =
      static_cast<size_t>(wrap_dim(node.attrs.integer("axis"), static_cast<int64_t>(shape.size())));
  Shape along(shape.size(), 1);
  along[axis] = shape[axis];
  const ValueId scale = b.reshape(b.cast(node.operands[1], dtype), along);
  const ValueId zero = b.reshape(b.cast(node.operands[2], dtype), along);
  return quantized(b, x, scale, zero, node.attrs);
}

std::vector<OpDef> make_rows() {
  const AttrSchema range = {integer("quant_min"), integer("quant_max")};
  const Attrs bytes_range = {{"quant_min", attr(-4)}, {"quant_max", attr(11)}};
  const auto with = [](Attrs attrs, std::initializer_list<Attrs::Entry> more) {
    for (const auto& [name, value] : more) attrs.set(name, value);
    return attrs;
  };
  return {
      {.name = "fake_quantize",
       .operands = "self",
       .results = "out, mask",
       .doc = "Values rounded to a grid of integers, and whether they were inside it.",
       .kind = Kind::composite,
       .attrs = joined({number("scale"), integer("zero_point")}, range),
       .aten = {{"fake_quantize_per_tensor_affine_cachemask",
                 "self | scale, zero_point, quant_min, quant_max"}},
       .infer = infer_quantize,
       .cost = cost_of_rounding,
       .decompose = decompose_by_number,
       .samples = {Sample{{reals({5, 7})},
                          with(bytes_range, {{"scale", 0.13}, {"zero_point", attr(3)}})}}},
      {.name = "fake_quantize_tensor",
       .operands = "self, scale, zero_point, fake_quant_enabled",
       .results = "out, mask",
       .doc = "fake_quantize with the grid and a switch as data.",
       .kind = Kind::composite,
       .attrs = range,
       .aten = {{"_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
                 "self, scale, zero_point, fake_quant_enabled | quant_min, quant_max"}},
       .infer = infer_by_tensor,
       .cost = cost_of_rounding,
       .decompose = decompose_by_tensor,
       .samples = {Sample{{reals({5, 7}), reals({1}, {0.1, 0.3}), integers({1}, {0, 4}),
                           integers({1}, {1, 2})},
                          bytes_range},
                   Sample{{reals({5, 7}), reals({1}, {0.1, 0.3}), integers({1}, {0, 4}),
                           integers({1}, {0, 1})},
                          bytes_range}}},
      {.name = "fake_quantize_channel",
       .operands = "self, scale, zero_point",
       .results = "out, mask",
       .doc = "fake_quantize with a grid for each channel.",
       .kind = Kind::composite,
       .attrs = joined({integer("axis")}, range),
       .aten = {{"fake_quantize_per_channel_affine_cachemask",
                 "self, scale, zero_point | axis, quant_min, quant_max"}},
       .infer = infer_by_channel,
       .cost = cost_of_rounding,
       .decompose = decompose_by_channel,
       .samples = {Sample{{reals({3, 4, 5}), reals({4}, {0.1, 0.3}), reals({4}, {0, 0})},
                          with(bytes_range, {{"axis", attr(1)}})}}},
  };
}

}  // namespace

std::span<const OpDef> families::quantize() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
