// Convolutions: three primitives (the convolution and its gradients by input and weight), of which
// ATen's convolution, transposed convolution and their backward are made.
#include "tessera/kernels/conv.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/scratch.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/families.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/partials.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

struct Window {
  ScratchShape stride, padding, dilation;
  int64_t groups;
};

// One number stands for all dimensions, as in PyTorch.
ScratchShape per_dimension(const Attrs& attrs, std::string_view name, size_t dims, int64_t least) {
  ScratchShape values = scratch_copy(attrs.integers(name));
  if (values.size() == 1) values.assign(dims, values[0]);
  check(values.size() == dims, "convolution: {} has {} numbers for {} spatial dimensions", name,
        values.size(), dims);
  for (const int64_t value : values) {
    check(value >= least, "convolution: {} must be at least {}, got {}", name, least, value);
  }
  return values;
}

Window window_of(const Attrs& attrs, size_t dims) {
  Window window{per_dimension(attrs, "stride", dims, 1), per_dimension(attrs, "padding", dims, 0),
                per_dimension(attrs, "dilation", dims, 1), attrs.integer("groups")};
  check(window.groups >= 1, "convolution: groups must be at least 1, got {}", window.groups);
  return window;
}

kernels::ConvParams params_of(const Attrs& attrs, int64_t rank) {
  const Window w = window_of(attrs, static_cast<size_t>(rank - 2));
  return {w.stride, w.padding, w.dilation, w.groups};
}

// input and weight, or gradient and weight: both [_, _, spatial...].
size_t spatial_dims(const TensorType& a, const TensorType& b) {
  check(a.shape.size() == b.shape.size() && a.shape.size() >= 3 && a.shape.size() <= 5,
        "convolution: wanted a batch of channels over 1 to 3 dimensions and a weight for it, got "
        "shapes {} and {}",
        to_string(a.shape), to_string(b.shape));
  check(a.dtype == b.dtype, ErrorKind::type,
        "convolution: the types {} and {} differ; cast one of them", name_of(a.dtype),
        name_of(b.dtype));
  check(is_floating(a.dtype), ErrorKind::type, "convolution: wanted floating point, got {}",
        name_of(a.dtype));
  return a.shape.size() - 2;
}

void check_bias(const OpView& op, size_t at, int64_t channels) {
  if (!op.has(at)) return;
  check(op.shape(at) == Shape{channels}, "convolution: the bias has shape {}, wanted [{}]",
        to_string(op.shape(at)), channels);
  check(op.type(at).dtype == op.type(0).dtype, ErrorKind::type,
        "convolution: the bias is of type {}, the input of {}", name_of(op.type(at).dtype),
        name_of(op.type(0).dtype));
}

TensorType conv_type(const TensorType& input, const TensorType& weight, const Attrs& attrs) {
  const size_t dims = spatial_dims(input, weight);
  const Window w = window_of(attrs, dims);
  check(input.shape[1] == weight.shape[1] * w.groups && weight.shape[0] % w.groups == 0,
        "convolution: an input of shape {} does not fit a weight of shape {} in {} groups",
        to_string(input.shape), to_string(weight.shape), w.groups);
  TensorType out{input.dtype, {input.shape[0], weight.shape[0]}};
  for (size_t i = 0; i < dims; ++i) {
    out.shape.push_back(kernels::conv_output_size(input.shape[2 + i], weight.shape[2 + i],
                                                  w.stride[i], w.padding[i], w.dilation[i]));
    check(out.shape.back() > 0,
          "convolution: a kernel of size {} does not fit an input of size {} with padding {}",
          weight.shape[2 + i], input.shape[2 + i], w.padding[i]);
  }
  return out;
}

// A gradient may cover fewer places than the convolution has: the others count as zero. Transposed
// convolutions with output padding need that, which is smaller than the stride or the dilation.
void check_places(const Shape& places, const Shape& input, const Shape& grad, const Attrs& attrs) {
  const Window w = window_of(attrs, places.size() - 2);
  bool fits = places[0] == grad[0] && places[1] == grad[1];
  for (size_t i = 2; i < places.size(); ++i) {
    const int64_t stride = w.stride[i - 2];
    const int64_t missing = (std::max(stride, w.dilation[i - 2]) - 1) / stride;
    fits = fits && grad[i] > 0 && grad[i] <= places[i] && places[i] - grad[i] <= missing;
  }
  check(fits, "convolution: an input of shape {} has places {}, but the gradient has shape {}",
        to_string(input), to_string(places), to_string(grad));
}

// A convolution from `input` to `places` with `weight`, whichever of the three is computed.
Cost conv_cost(const Shape& input, const Shape& weight, const Shape& places, const Attrs& attrs,
               DType dtype, Direction direction) {
  const Window w = window_of(attrs, input.size() - 2);
  ContractionCost cost;
  cost.groups = w.groups;
  cost.batch = input[0];
  cost.in = weight[1];
  cost.out = weight[0] / w.groups;
  cost.field.assign(input.begin() + 2, input.end());
  cost.kernel.assign(weight.begin() + 2, weight.end());
  cost.stride.assign(w.stride.begin(), w.stride.end());
  cost.padding.assign(w.padding.begin(), w.padding.end());
  cost.dilation.assign(w.dilation.begin(), w.dilation.end());
  cost.direction = direction;
  cost.type = dtype;
  cost.multiply_adds = numel(places) * numel(weight) / std::max<int64_t>(1, weight[0]);
  return cost;
}

// The primitives have a number for every dimension: kernels read them as they are.
void check_primitive(const OpView& op) {
  check_partials(op);
  const size_t dims = spatial_dims(op.type(0), op.type(1));
  for (const char* name : {"stride", "padding", "dilation", "kernel_size"}) {
    check(!op.attrs().has(name) || op.attrs().integers(name).size() == dims, ErrorKind::value,
          "convolution: {} needs {} numbers, got {}", name, dims,
          op.attrs().has(name) ? op.attrs().integers(name).size() : 0);
  }
}

// ---- conv

std::vector<TensorType> infer_conv(const OpView& op) {
  check_primitive(op);
  check_bias(op, 2, op.shape(1).empty() ? 0 : op.shape(1)[0]);
  return {conv_type(op.type(0), op.type(1), op.attrs())};
}

Cost cost_of_conv(const OpView& op, std::span<const TensorType> results) {
  return conv_cost(op.shape(0), op.shape(1), results[0].shape, op.attrs(), results[0].dtype,
                   Direction::forward);
}

void run_conv(const KernelCall& call) {
  TensorView bias;
  bias.present = call.has_input(2);
  if (bias.present) bias = call.inputs[2];
  kernels::conv(call.inputs[0], call.inputs[1], bias, params_of(call.attrs, call.inputs[0].rank()),
                call.outputs[0], call.pool, partials_of(call));
}

// ---- conv_input_grad

Shape input_shape(const Shape& grad, const Attrs& attrs) {
  Shape shape = attrs.integers("input_size");
  shape.insert(shape.begin(), grad[0]);
  return shape;
}

std::vector<TensorType> infer_input_grad(const OpView& op) {
  check_primitive(op);
  const TensorType input{op.type(0).dtype, input_shape(op.shape(0), op.attrs())};
  check_sizes(input.shape, input.dtype, "convolution");
  check_places(conv_type(input, op.type(1), op.attrs()).shape, input.shape, op.shape(0),
               op.attrs());
  return {input};
}

Cost cost_of_input_grad(const OpView& op, std::span<const TensorType> results) {
  return conv_cost(results[0].shape, op.shape(1), op.shape(0), op.attrs(), results[0].dtype,
                   Direction::input_gradient);
}

void run_input_grad(const KernelCall& call) {
  kernels::conv_input_grad(call.inputs[0], call.inputs[1],
                           params_of(call.attrs, call.inputs[0].rank()), call.outputs[0], call.pool,
                           partials_of(call));
}

// ---- conv_weight_grad

std::vector<TensorType> infer_weight_grad(const OpView& op) {
  check_primitive(op);
  const size_t dims = spatial_dims(op.type(0), op.type(1));
  const Window w = window_of(op.attrs(), dims);
  check(op.shape(1)[1] % w.groups == 0, "conv_weight_grad: {} channels cannot be cut in {} groups",
        op.shape(1)[1], w.groups);
  TensorType weight{op.type(0).dtype, {op.shape(0)[1], op.shape(1)[1] / w.groups}};
  const ScratchShape kernel = per_dimension(op.attrs(), "kernel_size", dims, 1);
  weight.shape.insert(weight.shape.end(), kernel.begin(), kernel.end());
  check_places(conv_type(op.type(1), weight, op.attrs()).shape, op.shape(1), op.shape(0),
               op.attrs());
  return {weight};
}

Cost cost_of_weight_grad(const OpView& op, std::span<const TensorType> results) {
  return conv_cost(op.shape(1), results[0].shape, op.shape(0), op.attrs(), results[0].dtype,
                   Direction::weight_gradient);
}

void run_weight_grad(const KernelCall& call) {
  kernels::conv_weight_grad(call.inputs[0], call.inputs[1],
                            params_of(call.attrs, call.inputs[0].rank()), call.outputs[0],
                            call.pool, partials_of(call));
}

// ---- ATen's convolution, forwards and backwards

// Of one of the convolutions that a composite is made of.
Attrs primitive_attrs(const Attrs& from, size_t dims, int64_t part = 0) {
  const Window w = window_of(from, dims);
  const auto list = [](const ScratchShape& values) { return Shape(values.begin(), values.end()); };
  Attrs attrs = partials_of_part(from, part);
  attrs.set("stride", list(w.stride));
  attrs.set("padding", list(w.padding));
  attrs.set("dilation", list(w.dilation));
  attrs.set("groups", w.groups);
  return attrs;
}

Shape tail(const Shape& shape, size_t begin) {
  return {shape.begin() + static_cast<std::ptrdiff_t>(begin), shape.end()};
}

// [channels, spatial...] of a transposed convolution's result.
Shape transposed_size(const TensorType& input, const TensorType& weight, const Attrs& attrs) {
  const size_t dims = spatial_dims(input, weight);
  const Window w = window_of(attrs, dims);
  const ScratchShape extra = per_dimension(attrs, "output_padding", dims, 0);
  check(input.shape[1] == weight.shape[0] && input.shape[1] % w.groups == 0,
        "transposed convolution: an input of shape {} does not fit a weight of shape {} in {} "
        "groups",
        to_string(input.shape), to_string(weight.shape), w.groups);
  Shape out{weight.shape[1] * w.groups};
  for (size_t i = 0; i < dims; ++i) {
    check(extra[i] < w.stride[i] || extra[i] < w.dilation[i],
          "transposed convolution: output_padding {} must be smaller than stride or dilation",
          extra[i]);
    // Far below the largest number, so that what follows can add.
    constexpr int64_t most = int64_t{1} << 60;
    const int64_t reach =
        std::min(most, saturating_product({input.shape[2 + i] - 1, w.stride[i]})) +
        std::min(most, saturating_product({w.dilation[i], weight.shape[2 + i] - 1}));
    out.push_back(reach - 2 * w.padding[i] + extra[i] + 1);
    check(out.back() > 0, "transposed convolution: nothing is left of dimension {} of shape {}",
          2 + i, to_string(input.shape));
  }
  return out;
}

TensorType convolution_type(const TensorType& input, const TensorType& weight, const Attrs& attrs) {
  if (!attrs.flag("transposed")) return conv_type(input, weight, attrs);
  Shape shape = transposed_size(input, weight, attrs);
  shape.insert(shape.begin(), input.shape[0]);
  return {input.dtype, shape};
}

std::vector<TensorType> infer_convolution(const OpView& op) {
  check_partials(op);
  const TensorType out = convolution_type(op.type(0), op.type(1), op.attrs());
  check_bias(op, 2, out.shape[1]);
  return {out};
}

Cost cost_of_convolution(const OpView& op, std::span<const TensorType> results) {
  const bool transposed = op.attrs().flag("transposed");
  const Shape& input = transposed ? results[0].shape : op.shape(0);
  const Shape& places = transposed ? op.shape(0) : results[0].shape;
  return conv_cost(input, op.shape(1), places, op.attrs(), results[0].dtype,
                   transposed ? Direction::input_gradient : Direction::forward);
}

std::vector<ValueId> decompose_convolution(Builder& b, const Node& node) {
  const ValueId input = node.operands[0];
  const ValueId weight = node.operands[1];
  const ValueId bias = node.operands.size() > 2 ? node.operands[2] : ValueId{};
  Attrs attrs = primitive_attrs(node.attrs, b.shape(input).size() - 2);
  if (!node.attrs.flag("transposed")) return {b.add("conv", {input, weight, bias}, attrs)};
  attrs.set("input_size", transposed_size(b.type(input), b.type(weight), node.attrs));
  const ValueId out = b.add("conv_input_grad", {input, weight}, attrs);
  if (!bias.valid()) return {out};
  Shape bias_shape(b.shape(out).size() - 1, 1);
  bias_shape[0] = b.shape(bias)[0];
  return {b.add("add", {out, b.reshape(bias, bias_shape)})};
}

std::vector<TensorType> infer_backward(const OpView& op) {
  check_partials(op);
  const TensorType out = convolution_type(op.type(1), op.type(2), op.attrs());
  check(out.shape == op.shape(0),
        "convolution_backward: the gradient has shape {}, the convolution's result {}",
        to_string(op.shape(0)), to_string(out.shape));
  check(op.attrs().integers("output_mask").size() == 3,
        "convolution_backward: output_mask needs 3 values");
  return {op.type(1), op.type(2), {op.type(0).dtype, {op.shape(0)[1]}}};
}

// Of both gradients together where both are asked for; the input's counts as the direction then.
Cost cost_of_backward(const OpView& op, std::span<const TensorType>) {
  const bool transposed = op.attrs().flag("transposed");
  const auto& mask = op.attrs().integers("output_mask");
  const Direction of_input = transposed ? Direction::forward : Direction::input_gradient;
  const Direction direction = mask[0] != 0 ? of_input : Direction::weight_gradient;
  const Shape& input = transposed ? op.shape(0) : op.shape(1);
  const Shape& places = transposed ? op.shape(1) : op.shape(0);
  auto cost = std::get<ContractionCost>(
      conv_cost(input, op.shape(2), places, op.attrs(), op.type(0).dtype, direction));
  cost.multiply_adds *= std::max<int64_t>(1, (mask[0] != 0) + (mask[1] != 0));
  return cost;
}

std::vector<ValueId> decompose_backward(Builder& b, const Node& node) {
  const ValueId grad = node.operands[0];
  const ValueId input = node.operands[1];
  const ValueId weight = node.operands[2];
  const bool transposed = node.attrs.flag("transposed");
  const auto& mask = node.attrs.integers("output_mask");
  const size_t dims = b.shape(input).size() - 2;
  std::vector<ValueId> results(3);
  if (mask[0] && transposed) {
    const ValueId places = b.add("conv", {grad, weight}, primitive_attrs(node.attrs, dims));
    results[0] = b.view(places, b.shape(input), contiguous_strides(b.shape(places)));
  }
  if (mask[0] && !transposed) {
    Attrs attrs = primitive_attrs(node.attrs, dims);
    attrs.set("input_size", tail(b.shape(input), 1));
    results[0] = b.add("conv_input_grad", {grad, weight}, attrs);
  }
  if (mask[1]) {
    // A transposed convolution is an input gradient: what it reads plays the gradient's part.
    Attrs attrs = primitive_attrs(node.attrs, dims, 1);
    attrs.set("kernel_size", tail(b.shape(weight), 2));
    results[1] = transposed ? b.add("conv_weight_grad", {input, grad}, attrs)
                            : b.add("conv_weight_grad", {grad, input}, attrs);
  }
  if (mask[2]) {
    Ints dims{0};
    for (size_t d = 2; d < b.shape(grad).size(); ++d) dims.push_back(static_cast<int64_t>(d));
    results[2] = b.add("sum", {grad}, {{"dim", dims}, {"keepdim", false}});
  }
  return results;
}

Attrs window_sample(Ints stride, Ints padding, Ints dilation, int64_t groups) {
  return {{"stride", std::move(stride)},
          {"padding", std::move(padding)},
          {"dilation", std::move(dilation)},
          {"groups", groups}};
}

Attrs with(Attrs attrs, const Attrs& more) {
  for (const auto& [name, value] : more) attrs.set(name, value);
  return attrs;
}

std::vector<OpDef> make_rows() {
  const AttrSchema window = joined(
      {ints("stride", {1}), ints("padding", {0}), ints("dilation", {1}), integer("groups", 1)},
      partials_schema());
  const auto with_window = [&](AttrSchema more) { return joined(std::move(more), window); };
  const Attrs plain_2d = window_sample({1, 1}, {1, 1}, {1, 1}, 1);
  const Attrs odd_2d = window_sample({2, 1}, {1, 2}, {1, 2}, 2);
  const Attrs plain_1d = window_sample({2}, {1}, {1}, 1);
  const Attrs plain_3d = window_sample({1, 1, 2}, {1, 0, 1}, {1, 1, 1}, 1);
  const Attr none = Ints{0, 0};
  const Attrs half_partials = {{"partials", DType::f16}};
  const Attrs chance = {{"partials", DType::f16}, {"rounding_key", attr(3)}};
  return {
      {.name = "conv",
       .operands = "input, weight, bias?",
       .results = "out",
       .doc = "Convolution over one to three dimensions.",
       .kind = Kind::contraction,
       .attrs = window,
       .infer = infer_conv,
       .cost = cost_of_conv,
       .cpu = run_conv,
       .samples = {Sample{{reals({2, 3, 6, 7}), reals({4, 3, 3, 3}), reals({4})}, plain_2d},
                   Sample{{reals({2, 4, 6, 7}), reals({6, 2, 3, 2}), left_out()}, odd_2d},
                   Sample{{reals({2, 3, 9}), reals({5, 3, 3}), reals({5})}, plain_1d},
                   Sample{{reals({1, 2, 4, 5, 6}), reals({3, 2, 3, 2, 3}), reals({3})}, plain_3d},
                   Sample{{reals({2, 40, 6, 7}), reals({6, 20, 3, 2}), reals({6})},
                          with(odd_2d, half_partials)},
                   Sample{{reals({2, 20, 6, 7}), reals({4, 20, 3, 3}), left_out()},
                          with(plain_2d, chance)}}},
      {.name = "conv_input_grad",
       .operands = "grad, weight",
       .results = "out",
       .doc = "A convolution's gradient by its input of size [channels, spatial...].",
       .kind = Kind::contraction,
       .attrs = with_window({ints("input_size")}),
       .infer = infer_input_grad,
       .cost = cost_of_input_grad,
       .cpu = run_input_grad,
       .samples = {Sample{{reals({2, 4, 6, 7}), reals({4, 3, 3, 3})},
                          with(plain_2d, {{"input_size", Ints{3, 6, 7}}})},
                   Sample{{reals({2, 6, 3, 9}), reals({6, 2, 3, 2})},
                          with(odd_2d, {{"input_size", Ints{4, 6, 7}}})},
                   Sample{{reals({2, 5, 5}), reals({5, 3, 3})},
                          with(plain_1d, {{"input_size", Ints{3, 9}}})},
                   Sample{{reals({2, 40, 3, 9}), reals({40, 2, 3, 2})},
                          with(with(odd_2d, {{"input_size", Ints{4, 6, 7}}}), half_partials)},
                   Sample{{reals({2, 20, 5}), reals({20, 3, 3})},
                          with(with(plain_1d, {{"input_size", Ints{3, 9}}}), chance)}}},
      {.name = "conv_weight_grad",
       .operands = "grad, input",
       .results = "out",
       .doc = "A convolution's gradient by its weight.",
       .kind = Kind::contraction,
       .attrs = with_window({ints("kernel_size")}),
       .infer = infer_weight_grad,
       .cost = cost_of_weight_grad,
       .cpu = run_weight_grad,
       .samples = {Sample{{reals({2, 4, 6, 7}), reals({2, 3, 6, 7})},
                          with(plain_2d, {{"kernel_size", Ints{3, 3}}})},
                   Sample{{reals({2, 6, 3, 9}), reals({2, 4, 6, 7})},
                          with(odd_2d, {{"kernel_size", Ints{3, 2}}})},
                   Sample{{reals({2, 5, 5}), reals({2, 3, 9})},
                          with(plain_1d, {{"kernel_size", Ints{3}}})},
                   Sample{{reals({2, 6, 3, 9}), reals({2, 4, 6, 7})},
                          with(with(odd_2d, {{"kernel_size", Ints{3, 2}}}), half_partials)},
                   Sample{{reals({2, 3, 70, 50}), reals({2, 2, 70, 50})},
                          with(with(plain_2d, {{"kernel_size", Ints{3, 3}}}), chance)}}},
      {.name = "convolution",
       .operands = "input, weight, bias?",
       .results = "out",
       .doc = "Convolution or transposed convolution.",
       .kind = Kind::composite,
       .attrs = with_window({flag("transposed", false), ints("output_padding", {0})}),
       .aten = {{"convolution",
                 "input, weight, bias | stride, padding, dilation, transposed, output_padding, "
                 "groups"}},
       .infer = infer_convolution,
       .cost = cost_of_convolution,
       .decompose = decompose_convolution,
       .samples = {Sample{{reals({2, 3, 6, 7}), reals({4, 3, 3, 3}), reals({4})},
                          with(plain_2d, {{"transposed", false}, {"output_padding", none}})},
                   Sample{{reals({2, 4, 5, 4}), reals({4, 3, 3, 2}), reals({6})},
                          with(odd_2d, {{"transposed", true}, {"output_padding", Ints{1, 0}}})},
                   Sample{{reals({2, 3, 9}), reals({3, 2, 3}), left_out()},
                          with(plain_1d, {{"transposed", true}, {"output_padding", Ints{1}}})}}},
      {.name = "convolution_backward",
       .operands = "grad_output, input, weight",
       .results = "grad_input, grad_weight, grad_bias",
       .doc = "The gradients of a convolution or transposed convolution.",
       .kind = Kind::composite,
       .attrs = with_window({maybe(ints("bias_sizes")), flag("transposed", false),
                             ints("output_padding", {0}), ints("output_mask", {1, 1, 1})}),
       .aten = {{"convolution_backward",
                 "grad_output, input, weight | bias_sizes, stride, padding, dilation, transposed, "
                 "output_padding, groups, output_mask"}},
       .infer = infer_backward,
       .cost = cost_of_backward,
       .decompose = decompose_backward,
       .samples = {Sample{{reals({2, 6, 3, 9}), reals({2, 4, 6, 7}), reals({6, 2, 3, 2})},
                          with(odd_2d, {{"bias_sizes", Ints{6}},
                                        {"transposed", false},
                                        {"output_padding", none}})},
                   Sample{{reals({2, 6, 10, 2}), reals({2, 4, 5, 4}), reals({4, 3, 3, 2})},
                          with(odd_2d, {{"bias_sizes", Ints{6}},
                                        {"transposed", true},
                                        {"output_padding", Ints{1, 0}}})}}},
  };
}

}  // namespace

std::span<const OpDef> families::conv() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
