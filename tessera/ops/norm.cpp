// Normalisations over batches, layers and groups, with their gradients.
#include "tessera/kernels/norm.h"

#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/kernels/copy.h"
#include "tessera/ops/families.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

TensorView input_or_none(const KernelCall& call, size_t i) {
  if (call.has_input(i)) return call.inputs[i];
  TensorView none;
  none.present = false;
  return none;
}

// A gradient that the mask leaves out is zero: its memory is there, though nobody reads it.
TensorView wanted_output(const KernelCall& call, size_t i) {
  TensorView out = call.outputs[i];
  out.present = call.attrs.integers("output_mask")[i] != 0;
  if (!out.present) kernels::fill(0, out, call.pool);
  return out;
}

void check_floating(const TensorType& type, std::string_view what) {
  check(is_floating(type.dtype), ErrorKind::type, "{}: wanted floating point, got {}", what,
        name_of(type.dtype));
}

void check_operand(const OpView& op, size_t i, const Shape& shape, std::string_view what,
                   std::string_view name) {
  OperandChecks(op, what).floating(i, name, shape);
}

void check_mask(const OpView& op, std::string_view what) {
  check(op.attrs().integers("output_mask").size() == 3, "{}: output_mask needs 3 values", what);
}

// Two passes for the statistics and one that normalises.
Cost cost_of_norm(const OpView& op, std::span<const TensorType>) {
  return ElementwiseCost{numel(op.shape(0)), 8};
}

// What a norm keeps for its gradient is kept as it was computed, not as its results are stored.
DType statistics_type(DType dtype) { return dtype == DType::f16 ? DType::f32 : dtype; }

// ---- Batch

int64_t channels_of(const TensorType& input, std::string_view what) {
  check_floating(input, what);
  check(input.shape.size() >= 2, "{}: wanted [batch, channels, ...], got shape {}", what,
        to_string(input.shape));
  return input.shape[1];
}

std::vector<TensorType> infer_batch_norm(const OpView& op) {
  constexpr std::string_view what = "batch_norm";
  const Shape per_channel{channels_of(op.type(0), what)};
  check_operand(op, 1, per_channel, what, "weight");
  check_operand(op, 2, per_channel, what, "bias");
  check_operand(op, 3, per_channel, what, "running_mean");
  check_operand(op, 4, per_channel, what, "running_var");
  check(op.has(3) == op.has(4), "batch_norm: give both running_mean and running_var, or neither");
  const bool training = op.attrs().flag("training");
  check(training || op.has(3), "batch_norm: evaluation needs running_mean and running_var");
  const DType dtype = op.has(3) ? op.type(3).dtype : op.type(0).dtype;
  const TensorType saved{statistics_type(dtype), training ? per_channel : Shape{0}};
  std::vector<TensorType> results = {op.type(0), saved, saved};
  if (op.has(3)) results.insert(results.end(), {op.type(3), op.type(4)});
  return results;
}

void run_batch_norm(const KernelCall& call) {
  kernels::BatchNorm norm;
  norm.input = call.inputs[0];
  norm.weight = input_or_none(call, 1);
  norm.bias = input_or_none(call, 2);
  norm.running_mean = input_or_none(call, 3);
  norm.running_var = input_or_none(call, 4);
  norm.training = call.attrs.flag("training");
  norm.momentum = call.attrs.number("momentum");
  norm.eps = call.attrs.number("eps");
  norm.out = call.outputs[0];
  norm.save_mean = call.outputs[1];
  norm.save_invstd = call.outputs[2];
  if (norm.running_mean.present) {
    norm.new_mean = call.outputs[3];
    norm.new_var = call.outputs[4];
  }
  kernels::batch_norm(norm, call.pool);
}

std::vector<TensorType> infer_batch_norm_backward(const OpView& op) {
  constexpr std::string_view what = "batch_norm_backward";
  const Shape per_channel{channels_of(op.type(1), what)};
  check_operand(op, 0, op.shape(1), what, "the gradient");
  check_operand(op, 2, per_channel, what, "weight");
  check_mask(op, what);
  const bool train = op.attrs().flag("train");
  for (const size_t i : train ? std::array<size_t, 2>{5, 6} : std::array<size_t, 2>{3, 4}) {
    check(op.has(i), "batch_norm_backward: the statistics are missing");
    check_operand(op, i, per_channel, what, "a statistic");
  }
  for (size_t i = 3; i <= 6; ++i) OperandChecks(op, what).floating(i, "a statistic");
  const TensorType parameter{op.has(2) ? op.type(2).dtype : op.type(1).dtype, per_channel};
  return {op.type(1), parameter, parameter};
}

void run_batch_norm_backward(const KernelCall& call) {
  kernels::BatchNormBackward norm;
  norm.grad = call.inputs[0];
  norm.input = call.inputs[1];
  norm.weight = input_or_none(call, 2);
  norm.running_mean = input_or_none(call, 3);
  norm.running_var = input_or_none(call, 4);
  norm.save_mean = input_or_none(call, 5);
  norm.save_invstd = input_or_none(call, 6);
  norm.training = call.attrs.flag("train");
  norm.eps = call.attrs.number("eps");
  norm.grad_input = wanted_output(call, 0);
  norm.grad_weight = wanted_output(call, 1);
  norm.grad_bias = wanted_output(call, 2);
  kernels::batch_norm_backward(norm, call.pool);
}

// ---- Layer

// The input's shape with the normalised dimensions, which must be its last, reduced to 1.
Shape rows_shape(const TensorType& input, const Shape& normalized, std::string_view what) {
  check_floating(input, what);
  Shape shape = input.shape;
  check(!normalized.empty() && normalized.size() <= shape.size() &&
            std::equal(normalized.rbegin(), normalized.rend(), shape.rbegin()),
        "{}: normalized_shape {} is not the end of the input's shape {}", what,
        to_string(normalized), to_string(shape));
  std::fill(shape.end() - static_cast<std::ptrdiff_t>(normalized.size()), shape.end(), 1);
  return shape;
}

std::vector<TensorType> infer_layer_norm(const OpView& op) {
  constexpr std::string_view what = "layer_norm";
  const Shape& normalized = op.attrs().integers("normalized_shape");
  const TensorType saved{statistics_type(op.type(0).dtype),
                         rows_shape(op.type(0), normalized, what)};
  check_operand(op, 1, normalized, what, "weight");
  check_operand(op, 2, normalized, what, "bias");
  return {op.type(0), saved, saved};
}

void run_layer_norm(const KernelCall& call) {
  kernels::LayerNorm norm;
  norm.input = call.inputs[0];
  norm.weight = input_or_none(call, 1);
  norm.bias = input_or_none(call, 2);
  norm.eps = call.attrs.number("eps");
  norm.out = call.outputs[0];
  norm.mean = call.outputs[1];
  norm.rstd = call.outputs[2];
  kernels::layer_norm(norm, call.pool);
}

std::vector<TensorType> infer_layer_norm_backward(const OpView& op) {
  constexpr std::string_view what = "layer_norm_backward";
  const Shape& normalized = op.attrs().integers("normalized_shape");
  const Shape rows = rows_shape(op.type(1), normalized, what);
  check_operand(op, 0, op.shape(1), what, "the gradient");
  check_operand(op, 2, rows, what, "mean");
  check_operand(op, 3, rows, what, "rstd");
  check_operand(op, 4, normalized, what, "weight");
  check_mask(op, what);
  const TensorType parameter{op.has(4) ? op.type(4).dtype : op.type(1).dtype, normalized};
  return {op.type(1), parameter, parameter};
}

void run_layer_norm_backward(const KernelCall& call) {
  kernels::LayerNormBackward norm;
  norm.grad = call.inputs[0];
  norm.input = call.inputs[1];
  norm.mean = call.inputs[2];
  norm.rstd = call.inputs[3];
  norm.weight = input_or_none(call, 4);
  norm.grad_input = wanted_output(call, 0);
  norm.grad_weight = wanted_output(call, 1);
  norm.grad_bias = wanted_output(call, 2);
  kernels::layer_norm_backward(norm, call.pool);
}

// ---- Group

void check_groups(const OpView& op, const TensorType& input, std::string_view what) {
  check_floating(input, what);
  const int64_t group = op.attrs().integer("group");
  const int64_t channels = op.attrs().integer("C");
  check(group >= 1 && channels >= 0 && channels % group == 0,
        "{}: {} channels cannot be cut in {} groups", what, channels, group);
  const TensorType images{input.dtype,
                          {op.attrs().integer("N"), channels, op.attrs().integer("HxW")}};
  check(fits_in_memory(images) && numel(images.shape) == numel(input.shape),
        "{}: an input of shape {} does not have {} images of {} channels of {} elements", what,
        to_string(input.shape), op.attrs().integer("N"), channels, op.attrs().integer("HxW"));
}

Shape groups_shape(const OpView& op) {
  return {op.attrs().integer("N"), op.attrs().integer("group")};
}

std::vector<TensorType> infer_group_norm(const OpView& op) {
  constexpr std::string_view what = "group_norm";
  check_groups(op, op.type(0), what);
  check_operand(op, 1, {op.attrs().integer("C")}, what, "weight");
  check_operand(op, 2, {op.attrs().integer("C")}, what, "bias");
  const TensorType saved{statistics_type(op.type(0).dtype), groups_shape(op)};
  return {op.type(0), saved, saved};
}

void run_group_norm(const KernelCall& call) {
  kernels::GroupNorm norm;
  norm.input = call.inputs[0];
  norm.weight = input_or_none(call, 1);
  norm.bias = input_or_none(call, 2);
  norm.batch = call.attrs.integer("N");
  norm.channels = call.attrs.integer("C");
  norm.groups = call.attrs.integer("group");
  norm.eps = call.attrs.number("eps");
  norm.out = call.outputs[0];
  norm.mean = call.outputs[1];
  norm.rstd = call.outputs[2];
  kernels::group_norm(norm, call.pool);
}

std::vector<TensorType> infer_group_norm_backward(const OpView& op) {
  constexpr std::string_view what = "group_norm_backward";
  check_groups(op, op.type(1), what);
  check_operand(op, 0, op.shape(1), what, "the gradient");
  check_operand(op, 2, groups_shape(op), what, "mean");
  check_operand(op, 3, groups_shape(op), what, "rstd");
  const Shape per_channel{op.attrs().integer("C")};
  check_operand(op, 4, per_channel, what, "weight");
  check_mask(op, what);
  const TensorType parameter{op.has(4) ? op.type(4).dtype : op.type(1).dtype, per_channel};
  return {op.type(1), parameter, parameter};
}

void run_group_norm_backward(const KernelCall& call) {
  kernels::GroupNormBackward norm;
  norm.grad = call.inputs[0];
  norm.input = call.inputs[1];
  norm.mean = call.inputs[2];
  norm.rstd = call.inputs[3];
  norm.weight = input_or_none(call, 4);
  norm.batch = call.attrs.integer("N");
  norm.channels = call.attrs.integer("C");
  norm.groups = call.attrs.integer("group");
  norm.grad_input = wanted_output(call, 0);
  norm.grad_weight = wanted_output(call, 1);
  norm.grad_bias = wanted_output(call, 2);
  kernels::group_norm_backward(norm, call.pool);
}

std::vector<OpDef> make_rows() {
  const AttrSpec mask = ints("output_mask", {1, 1, 1});
  const AttrSchema sizes = {integer("N"), integer("C"), integer("HxW"), integer("group")};
  constexpr Domain positive{0.5, 2};
  const Attrs group_sample = {
      {"N", attr(2)}, {"C", attr(6)}, {"HxW", attr(20)}, {"group", attr(3)}};
  return {
      {.name = "batch_norm",
       .operands = "input, weight?, bias?, running_mean?, running_var?",
       .results = "out, save_mean, save_invstd, running_mean, running_var",
       .doc = "Normalises channels by their statistics over the batch, or by the running ones. The "
              "running ones are results only where they are given.",
       .kind = Kind::normalization,
       .attrs = {flag("training"), number("momentum", 0.1), number("eps", 1e-5)},
       .aten =
           {{"native_batch_norm",
             "input, weight, bias, running_mean, running_var | training, momentum, eps",
             "running_mean=3, running_var=4"},
            {"_native_batch_norm_legit_functional",
             "input, weight, bias, running_mean, running_var | training, momentum, eps"},
            {"_native_batch_norm_legit_no_training",
             "input, weight, bias, running_mean, running_var | training=#false, momentum, eps"}},
       .traits = {.in_place = {{3, 3}, {4, 4}}},
       .infer = infer_batch_norm,
       .cost = cost_of_norm,
       .cpu = run_batch_norm,
       .samples =
           {Sample{{reals({4, 3, 5, 2}), reals({3}), reals({3}), reals({3}), reals({3}, positive)},
                   {{"training", true}}},
            Sample{{reals({4, 3, 5, 2}), reals({3}), reals({3}), reals({3}), reals({3}, positive)},
                   {{"training", false}}},
            Sample{{reals({6, 5}), left_out(), left_out(), left_out(), left_out()},
                   {{"training", true}}}}},
      {.name = "batch_norm_backward",
       .operands =
           "grad_out, input, weight?, running_mean?, running_var?, save_mean?, save_invstd?",
       .results = "grad_input, grad_weight, grad_bias",
       .doc = "The gradients of batch_norm.",
       .kind = Kind::normalization,
       .attrs = {flag("train"), number("eps", 1e-5), mask},
       .aten = {{"native_batch_norm_backward",
                 "grad_out, input, weight, running_mean, running_var, save_mean, save_invstd | "
                 "train, eps, output_mask"}},
       .infer = infer_batch_norm_backward,
       .cost = cost_of_norm,
       .cpu = run_batch_norm_backward,
       .samples = {Sample{{reals({4, 3, 5, 2}), reals({4, 3, 5, 2}), reals({3}), reals({3}),
                           reals({3}, positive), reals({3}), reals({3}, positive)},
                          {{"train", true}}},
                   Sample{{reals({4, 3, 5, 2}), reals({4, 3, 5, 2}), reals({3}), reals({3}),
                           reals({3}, positive), left_out(), left_out()},
                          {{"train", false}}}}},
      {.name = "layer_norm",
       .operands = "input, weight?, bias?",
       .results = "out, mean, rstd",
       .doc = "Normalises the last dimensions by their own statistics.",
       .kind = Kind::normalization,
       .attrs = {ints("normalized_shape"), number("eps", 1e-5)},
       .aten = {{"native_layer_norm", "input, weight, bias | normalized_shape, eps"}},
       .infer = infer_layer_norm,
       .cost = cost_of_norm,
       .cpu = run_layer_norm,
       .samples = {Sample{{reals({3, 4, 10}), reals({10}), reals({10})},
                          {{"normalized_shape", Ints{10}}}},
                   Sample{{reals({3, 4, 5}), left_out(), left_out()},
                          {{"normalized_shape", Ints{4, 5}}}}}},
      {.name = "layer_norm_backward",
       .operands = "grad_out, input, mean, rstd, weight?, bias?",
       .results = "grad_input, grad_weight, grad_bias",
       .doc = "The gradients of layer_norm.",
       .kind = Kind::normalization,
       .attrs = {ints("normalized_shape"), mask},
       .aten = {{"native_layer_norm_backward",
                 "grad_out, input, mean, rstd, weight, bias | normalized_shape, output_mask"}},
       .infer = infer_layer_norm_backward,
       .cost = cost_of_norm,
       .cpu = run_layer_norm_backward,
       .samples = {Sample{{reals({3, 4, 10}), reals({3, 4, 10}), reals({3, 4, 1}),
                           reals({3, 4, 1}, positive), reals({10}), reals({10})},
                          {{"normalized_shape", Ints{10}}}}}},
      {.name = "group_norm",
       .operands = "input, weight?, bias?",
       .results = "out, mean, rstd",
       .doc = "Normalises groups of channels of an image by their own statistics.",
       .kind = Kind::normalization,
       .attrs = joined(sizes, {number("eps", 1e-5)}),
       .aten = {{"native_group_norm", "input, weight, bias | N, C, HxW, group, eps"}},
       .infer = infer_group_norm,
       .cost = cost_of_norm,
       .cpu = run_group_norm,
       .samples = {Sample{{reals({2, 6, 4, 5}), reals({6}), reals({6})}, group_sample},
                   Sample{{reals({2, 6, 20}), left_out(), left_out()}, group_sample}}},
      {.name = "group_norm_backward",
       .operands = "grad_out, input, mean, rstd, weight?",
       .results = "grad_input, grad_weight, grad_bias",
       .doc = "The gradients of group_norm.",
       .kind = Kind::normalization,
       .attrs = joined(sizes, {mask}),
       .aten = {{"native_group_norm_backward",
                 "grad_out, input, mean, rstd, weight | N, C, HxW, group, output_mask"}},
       .infer = infer_group_norm_backward,
       .cost = cost_of_norm,
       .cpu = run_group_norm_backward,
       .samples = {Sample{{reals({2, 6, 4, 5}), reals({2, 6, 4, 5}), reals({2, 3}),
                           reals({2, 3}, positive), reals({6})},
                          group_sample}}},
  };
}

}  // namespace

std::span<const OpDef> families::norm() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
