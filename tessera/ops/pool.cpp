// Pooling over windows: maxima and averages, plain and adaptive, with their gradients.
#include "tessera/kernels/pool.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/scratch.h"
#include "tessera/ops/families.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

ScratchShape per_dimension(const Attrs& attrs, std::string_view name, size_t dims, int64_t least) {
  ScratchShape values = scratch_copy(attrs.integers(name));
  if (values.size() == 1) values.assign(dims, values[0]);
  check(values.size() == dims, "pooling: {} has {} numbers for {} dimensions", name, values.size(),
        dims);
  for (const int64_t value : values) {
    check(value >= least, "pooling: {} must be at least {}, got {}", name, least, value);
  }
  return values;
}

template <size_t dims>
kernels::PoolParams params_of(const Attrs& attrs) {
  kernels::PoolParams p;
  p.kernel = per_dimension(attrs, "kernel_size", dims, 1);
  p.stride = attrs.integers("stride").empty() ? p.kernel : per_dimension(attrs, "stride", dims, 1);
  p.padding = per_dimension(attrs, "padding", dims, 0);
  p.dilation =
      attrs.has("dilation") ? per_dimension(attrs, "dilation", dims, 1) : ScratchShape(dims, 1);
  p.ceil_mode = attrs.flag("ceil_mode");
  for (size_t i = 0; i < dims; ++i) {
    check(2 * p.padding[i] <= p.kernel[i],
          "pooling: padding {} is more than half the kernel size {}", p.padding[i], p.kernel[i]);
  }
  return p;
}

void check_input(const TensorType& input, size_t dims) {
  check(input.shape.size() == dims + 1 || input.shape.size() == dims + 2,
        "pooling over {} dimensions: wanted {} or {} dimensions, got shape {}", dims, dims + 1,
        dims + 2, to_string(input.shape));
  check(is_floating(input.dtype), ErrorKind::type, "pooling: wanted floating point, got {}",
        name_of(input.dtype));
}

TensorType pooled_type(const TensorType& input, const kernels::PoolParams& p) {
  const size_t dims = p.kernel.size();
  check_input(input, dims);
  TensorType out = input;
  for (size_t i = 0; i < dims; ++i) {
    int64_t& size = out.shape[out.shape.size() - dims + i];
    const int64_t places = kernels::pool_output_size(size, p.kernel[i], p.stride[i], p.padding[i],
                                                     p.dilation[i], p.ceil_mode);
    check(places > 0, "pooling: a window of size {} does not fit an input of size {}", p.kernel[i],
          size);
    size = places;
  }
  return out;
}

void check_grad(const TensorType& grad, const TensorType& out) {
  check(grad == out, "pooling: the gradient is {}, the result {}", to_string(grad), to_string(out));
}

// Of an input and its pooled form one is the first operand, the other the result.
int64_t fewer_elements(const OpView& op, std::span<const TensorType> results) {
  return std::min(numel(op.shape(0)), numel(results[0].shape));
}

template <size_t dims>
Cost cost_of_windows(const OpView& op, std::span<const TensorType> results) {
  const int64_t windows = fewer_elements(op, results);
  int64_t elements = windows;
  for (const int64_t size : per_dimension(op.attrs(), "kernel_size", dims, 1)) {
    elements = saturating_product({elements, size});
  }
  return ReductionCost{elements, windows};
}

Cost cost_of_adaptive(const OpView& op, std::span<const TensorType> results) {
  return ReductionCost{std::max(numel(op.shape(0)), numel(results[0].shape)),
                       fewer_elements(op, results)};
}

// ---- Maxima

template <size_t dims>
std::vector<TensorType> infer_max(const OpView& op) {
  const TensorType out = pooled_type(op.type(0), params_of<dims>(op.attrs()));
  return {out, {DType::i64, out.shape}};
}

template <size_t dims>
void run_max(const KernelCall& call) {
  kernels::max_pool(call.inputs[0], params_of<dims>(call.attrs), call.outputs[0], call.outputs[1],
                    call.pool);
}

template <size_t dims>
std::vector<TensorType> infer_max_backward(const OpView& op) {
  const TensorType out = pooled_type(op.type(1), params_of<dims>(op.attrs()));
  check_grad(op.type(0), out);
  OperandChecks(op, "pooling").index(2, "indices", out.shape);
  return {op.type(1)};
}

template <size_t dims>
void run_max_backward(const KernelCall& call) {
  kernels::max_pool_backward(call.inputs[0], call.inputs[2], dims, call.outputs[0], call.pool);
}

// ---- Averages

template <size_t dims>
kernels::AverageWindows windows_of(const Attrs& attrs, std::span<const int64_t> input,
                                   std::span<const int64_t> places) {
  auto windows = kernels::average_windows(params_of<dims>(attrs), input, places);
  windows.count_padding = attrs.flag("count_include_pad");
  if (attrs.has("divisor_override")) windows.divisor = attrs.integer("divisor_override");
  return windows;
}

template <size_t dims>
TensorType average_type(const TensorType& input, const Attrs& attrs) {
  check(!attrs.has("divisor_override") || attrs.integer("divisor_override") != 0,
        "pooling: divisor_override must not be zero");
  return pooled_type(input, params_of<dims>(attrs));
}

template <size_t dims>
std::vector<TensorType> infer_avg(const OpView& op) {
  return {average_type<dims>(op.type(0), op.attrs())};
}

template <size_t dims>
void run_avg(const KernelCall& call) {
  const TensorView& x = call.inputs[0];
  const TensorView& out = call.outputs[0];
  kernels::avg_pool(x, windows_of<dims>(call.attrs, x.sizes, out.sizes), dims, out, call.pool);
}

template <size_t dims>
std::vector<TensorType> infer_avg_backward(const OpView& op) {
  check_grad(op.type(0), average_type<dims>(op.type(1), op.attrs()));
  return {op.type(1)};
}

template <size_t dims>
void run_avg_backward(const KernelCall& call) {
  const TensorView& grad = call.inputs[0];
  const TensorView& out = call.outputs[0];
  kernels::avg_pool_backward(grad, windows_of<dims>(call.attrs, out.sizes, grad.sizes), dims, out,
                             call.pool);
}

// ---- Adaptive averages

template <size_t dims>
std::vector<TensorType> infer_adaptive(const OpView& op) {
  check_input(op.type(0), dims);
  TensorType out = op.type(0);
  const ScratchShape size = per_dimension(op.attrs(), "output_size", dims, 0);
  std::copy(size.begin(), size.end(), out.shape.end() - static_cast<std::ptrdiff_t>(dims));
  return {out};
}

template <size_t dims>
void run_adaptive(const KernelCall& call) {
  const TensorView& x = call.inputs[0];
  const TensorView& out = call.outputs[0];
  const auto windows = kernels::adaptive_windows(x.sizes.last(dims), out.sizes.last(dims));
  kernels::avg_pool(x, windows, dims, out, call.pool);
}

template <size_t dims>
std::vector<TensorType> infer_adaptive_backward(const OpView& op) {
  check_input(op.type(1), dims);
  check(op.shape(0).size() == op.shape(1).size() && op.type(0).dtype == op.type(1).dtype &&
            std::equal(op.shape(0).begin(), op.shape(0).end() - static_cast<std::ptrdiff_t>(dims),
                       op.shape(1).begin()),
        "pooling: a gradient of shape {} does not belong to an input of shape {}",
        to_string(op.shape(0)), to_string(op.shape(1)));
  return {op.type(1)};
}

template <size_t dims>
void run_adaptive_backward(const KernelCall& call) {
  const TensorView& grad = call.inputs[0];
  const TensorView& out = call.outputs[0];
  const auto windows = kernels::adaptive_windows(out.sizes.last(dims), grad.sizes.last(dims));
  kernels::avg_pool_backward(grad, windows, dims, out, call.pool);
}

// ---- Adaptive maxima, and maxima put back

template <size_t dims>
std::vector<TensorType> infer_adaptive_max(const OpView& op) {
  const TensorType out = infer_adaptive<dims>(op)[0];
  return {out, {DType::i64, out.shape}};
}

template <size_t dims>
void run_adaptive_max(const KernelCall& call) {
  kernels::adaptive_max_pool(call.inputs[0], dims, call.outputs[0], call.outputs[1], call.pool);
}

template <size_t dims>
std::vector<TensorType> infer_adaptive_max_backward(const OpView& op) {
  OperandChecks(op, "pooling").index(2, "indices", op.shape(0));
  return infer_adaptive_backward<dims>(op);
}

template <size_t dims>
std::vector<TensorType> infer_unpool(const OpView& op) {
  OperandChecks(op, "max_unpool").index(1, "indices", op.shape(0));
  return infer_adaptive<dims>(op);
}

template <size_t dims>
void run_unpool(const KernelCall& call) {
  kernels::max_unpool(call.inputs[0], call.inputs[1], dims, call.outputs[0], call.pool);
}

// ---- Rows, for two and three dimensions

AttrSchema max_attrs() {
  return {ints("kernel_size"), ints("stride", {}), ints("padding", {0}), ints("dilation", {1}),
          flag("ceil_mode", false)};
}

AttrSchema avg_attrs() {
  return {ints("kernel_size"),
          ints("stride", {}),
          ints("padding", {0}),
          flag("ceil_mode", false),
          flag("count_include_pad", true),
          maybe(integer("divisor_override"))};
}

constexpr auto max_arguments = "kernel_size, stride, padding, dilation, ceil_mode";
constexpr auto avg_arguments =
    "kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override";

template <size_t dims>
void add_rows(std::vector<OpDef>& rows, const std::string& suffix, const Shape& field,
              const Shape& halved) {
  const auto batch = [](const Shape& spatial, bool batched = true) {
    Shape shape = batched ? Shape{2, 3} : Shape{3};
    shape.insert(shape.end(), spatial.begin(), spatial.end());
    return shape;
  };
  const Shape kernel(dims, 3);
  const Shape two(dims, 2);
  const Shape one(dims, 1);
  const Attrs overlapping = {
      {"kernel_size", kernel}, {"stride", two}, {"padding", one}, {"ceil_mode", true}};
  const Attrs plain = {{"kernel_size", two}};
  Attrs averages_inside = overlapping;
  averages_inside.set("count_include_pad", false);
  Attrs divided = plain;
  divided.set("divisor_override", attr(3));
  const double places = static_cast<double>(numel(field));

  rows.push_back(
      {.name = "max_pool" + suffix + "_with_indices",
       .operands = "self",
       .results = "out, indices",
       .doc = "The largest element of each window, and its place in the plane.",
       .kind = Kind::pooling,
       .attrs = max_attrs(),
       .aten = {{"max_pool" + suffix + "_with_indices", std::string("self | ") + max_arguments}},
       .traits = {.passes_on = {0}},
       .infer = infer_max<dims>,
       .cost = cost_of_windows<dims>,
       .cpu = run_max<dims>,
       .samples = {Sample{{reals(batch(field))}, plain},
                   Sample{{reals(batch(field, false))}, overlapping}}});
  rows.push_back({.name = "max_pool" + suffix + "_with_indices_backward",
                  .operands = "grad_output, self, indices",
                  .results = "grad_input",
                  .doc = "Gradients added to where the maxima were.",
                  .kind = Kind::pooling,
                  .attrs = max_attrs(),
                  .aten = {{"max_pool" + suffix + "_with_indices_backward",
                            std::string("grad_output, self, indices | ") + max_arguments}},
                  .traits = {.shape_only = {1}},
                  .infer = infer_max_backward<dims>,
                  .cost = cost_of_windows<dims>,
                  .cpu = run_max_backward<dims>,
                  .samples = {Sample{{reals(batch(halved)), reals(batch(field)),
                                      integers(batch(halved), {0, places})},
                                     plain}}});
  rows.push_back({.name = "avg_pool" + suffix,
                  .operands = "self",
                  .results = "out",
                  .doc = "The average of each window.",
                  .kind = Kind::pooling,
                  .attrs = avg_attrs(),
                  .aten = {{"avg_pool" + suffix, std::string("self | ") + avg_arguments}},
                  .infer = infer_avg<dims>,
                  .cost = cost_of_windows<dims>,
                  .cpu = run_avg<dims>,
                  .samples = {Sample{{reals(batch(field))}, overlapping},
                              Sample{{reals(batch(field, false))}, averages_inside},
                              Sample{{reals(batch(field))}, divided}}});
  rows.push_back({.name = "avg_pool" + suffix + "_backward",
                  .operands = "grad_output, self",
                  .results = "grad_input",
                  .doc = "Each window's gradient shared out among its elements.",
                  .kind = Kind::pooling,
                  .attrs = avg_attrs(),
                  .aten = {{"avg_pool" + suffix + "_backward",
                            std::string("grad_output, self | ") + avg_arguments}},
                  .traits = {.shape_only = {1}},
                  .infer = infer_avg_backward<dims>,
                  .cost = cost_of_windows<dims>,
                  .cpu = run_avg_backward<dims>,
                  .samples = {Sample{{reals(batch(halved)), reals(batch(field))}, plain},
                              Sample{{reals(batch(halved)), reals(batch(field))}, divided}}});
  rows.push_back({.name = "adaptive_avg_pool" + suffix,
                  .operands = "self",
                  .results = "out",
                  .doc = "Averages of as many windows as asked for, spread evenly.",
                  .kind = Kind::pooling,
                  .attrs = {ints("output_size")},
                  .aten = {{"_adaptive_avg_pool" + suffix, "self | output_size"}},
                  .infer = infer_adaptive<dims>,
                  .cost = cost_of_adaptive,
                  .cpu = run_adaptive<dims>,
                  .samples = {Sample{{reals(batch(field))}, {{"output_size", kernel}}},
                              Sample{{reals(batch(field, false))}, {{"output_size", one}}}}});
  rows.push_back({.name = "adaptive_avg_pool" + suffix + "_backward",
                  .operands = "grad_output, self",
                  .results = "grad_input",
                  .doc = "Each window's gradient shared out among its elements.",
                  .kind = Kind::pooling,
                  .aten = {{"_adaptive_avg_pool" + suffix + "_backward", "grad_output, self"}},
                  .traits = {.shape_only = {1}},
                  .infer = infer_adaptive_backward<dims>,
                  .cost = cost_of_adaptive,
                  .cpu = run_adaptive_backward<dims>,
                  .samples = {Sample{{reals(batch(kernel)), reals(batch(field))}}}});
  rows.push_back({.name = "adaptive_max_pool" + suffix,
                  .operands = "self",
                  .results = "out, indices",
                  .doc = "Maxima of as many windows as asked for, spread evenly.",
                  .kind = Kind::pooling,
                  .attrs = {ints("output_size")},
                  .aten = {{"adaptive_max_pool" + suffix, "self | output_size"}},
                  .traits = {.passes_on = {0}},
                  .infer = infer_adaptive_max<dims>,
                  .cost = cost_of_adaptive,
                  .cpu = run_adaptive_max<dims>,
                  .samples = {Sample{{reals(batch(field))}, {{"output_size", kernel}}},
                              Sample{{reals(batch(field, false))}, {{"output_size", one}}}}});
  rows.push_back(
      {.name = "adaptive_max_pool" + suffix + "_backward",
       .operands = "grad_output, self, indices",
       .results = "grad_input",
       .doc = "Gradients added to where the maxima were.",
       .kind = Kind::pooling,
       .aten = {{"adaptive_max_pool" + suffix + "_backward", "grad_output, self, indices"}},
       .traits = {.shape_only = {1}},
       .infer = infer_adaptive_max_backward<dims>,
       .cost = cost_of_adaptive,
       .cpu = run_max_backward<dims>,
       .samples = {Sample{
           {reals(batch(kernel)), reals(batch(field)), integers(batch(kernel), {0, places})}}}});
  // In three dimensions ATen also hands over the windows, which the indices make superfluous.
  const bool windows_given = dims == 3;
  AttrSchema unpool_attrs = {ints("output_size")};
  if (windows_given)
    unpool_attrs = joined(unpool_attrs, {ints("stride", two), ints("padding", one)});
  rows.push_back({.name = "max_unpool" + suffix,
                  .operands = "self, indices",
                  .results = "out",
                  .doc = "Maxima put back to where they were, zeros elsewhere.",
                  .kind = Kind::pooling,
                  .attrs = unpool_attrs,
                  .aten = {{"max_unpool" + suffix, std::string("self, indices | output_size") +
                                                       (windows_given ? ", stride, padding" : "")}},
                  .infer = infer_unpool<dims>,
                  .cost = cost_of_adaptive,
                  .cpu = run_unpool<dims>,
                  // One element for each plane: several at one place have no order in PyTorch.
                  .samples = {Sample{{reals(batch(one)), integers(batch(one), {0, places})},
                                     {{"output_size", field}}}}});
}

std::vector<OpDef> make_rows() {
  std::vector<OpDef> rows;
  add_rows<2>(rows, "2d", {7, 8}, {3, 4});
  add_rows<3>(rows, "3d", {5, 6, 7}, {2, 3, 3});
  return rows;
}

}  // namespace

std::span<const OpDef> families::pool() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
