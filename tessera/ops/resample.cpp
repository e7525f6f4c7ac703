// Resizing of images, padding with an image's own values, and pixel shuffles, with their gradients.
#include "tessera/kernels/resample.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/scratch.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/families.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

Cost cost_of_resampling(const OpView& op, std::span<const TensorType> results) {
  return ElementwiseCost{std::max(numel(op.shape(0)), numel(results[0].shape)), 4};
}

void check_floating(const TensorType& type, std::string_view what) {
  check(is_floating(type.dtype), ErrorKind::type, "{}: wanted floating point, got {}", what,
        name_of(type.dtype));
}

// ---- Resizing of [batch, channels, spatial...]

enum class Mode { nearest, nearest_exact, linear, cubic };

// ATen's names for the factors the user gave, outermost dimension first.
std::span<const std::string_view> scale_names(size_t dims) {
  static constexpr std::string_view line[] = {"scales"};
  static constexpr std::string_view space[] = {"scales_d", "scales_h", "scales_w"};
  return dims == 1 ? line : std::span(space).last(dims);
}

// The factor in either of ATen's two forms; 0 where there is none.
double scale_of(const Attrs& attrs, size_t dims, size_t d) {
  if (attrs.has("scale_factors")) return attrs.numbers("scale_factors").at(d);
  const std::string_view name = scale_names(dims)[d];
  return attrs.has(name) ? attrs.number(name) : 0;
}

Shape resized(const Shape& input, size_t dims, const Attrs& attrs) {
  check(input.size() == dims + 2,
        "resizing: wanted a batch, channels and {} spatial dimensions, got shape {}", dims,
        to_string(input));
  const bool has_size = attrs.has("output_size");
  check(has_size || attrs.has("scale_factors"), "resizing: needs output_size or scale_factors");
  check(!has_size || attrs.integers("output_size").size() == dims,
        "resizing: output_size needs {} values", dims);
  check(!attrs.has("scale_factors") || attrs.numbers("scale_factors").size() == dims,
        "resizing: scale_factors needs {} values", dims);
  Shape out = input;
  for (size_t d = 0; d < dims; ++d) {
    int64_t& size = out[2 + d];
    const double wanted = has_size ? static_cast<double>(attrs.integers("output_size")[d])
                                   : static_cast<double>(size) * scale_of(attrs, dims, d);
    check(wanted >= 1 && wanted < 0x1p48 && input[2 + d] > 0,
          "resizing: from shape {} to size {} in dimension {}", to_string(input), wanted, 2 + d);
    size = static_cast<int64_t>(wanted);
  }
  return out;
}

template <Mode mode>
ScratchVector<kernels::Taps> resizing_taps(std::span<const int64_t> from,
                                           std::span<const int64_t> to, const Attrs& attrs) {
  const size_t dims = from.size() - 2;
  ScratchVector<kernels::Taps> taps;
  for (size_t d = 0; d < dims; ++d) {
    const double scale = scale_of(attrs, dims, d);
    const auto make = [&](auto taps_of, auto... more) {
      taps.push_back(taps_of(from[2 + d], to[2 + d], scale, more...));
    };
    if constexpr (mode == Mode::nearest) make(kernels::nearest_taps);
    if constexpr (mode == Mode::nearest_exact) make(kernels::nearest_centre_taps);
    if constexpr (mode == Mode::linear) make(kernels::linear_taps, attrs.flag("align_corners"));
    if constexpr (mode == Mode::cubic) make(kernels::cubic_taps, attrs.flag("align_corners"));
  }
  return taps;
}

template <size_t dims>
std::vector<TensorType> infer_resize(const OpView& op) {
  check_floating(op.type(0), "resizing");
  return {{op.type(0).dtype, resized(op.shape(0), dims, op.attrs())}};
}

template <Mode mode>
void run_resize(const KernelCall& call) {
  const TensorView& x = call.inputs[0];
  const TensorView& out = call.outputs[0];
  kernels::resample(x, resizing_taps<mode>(x.sizes, out.sizes, call.attrs), out, call.pool);
}

template <size_t dims>
std::vector<TensorType> infer_resize_backward(const OpView& op) {
  check_floating(op.type(0), "resizing");
  const Shape& input = op.attrs().integers("input_size");
  check_sizes(input, op.type(0).dtype, "resizing");
  check(resized(input, dims, op.attrs()) == op.shape(0),
        "resizing: a gradient of shape {} does not belong to an input of shape {}",
        to_string(op.shape(0)), to_string(input));
  return {{op.type(0).dtype, input}};
}

template <Mode mode>
void run_resize_backward(const KernelCall& call) {
  const TensorView& grad = call.inputs[0];
  const TensorView& out = call.outputs[0];
  kernels::resample_backward(grad, resizing_taps<mode>(out.sizes, grad.sizes, call.attrs), out,
                             call.pool);
}

// ---- Padding of the last dimensions: two sizes for each, the last dimension first

enum class Border { reflect, replicate };

template <Border border, size_t dims>
Shape padded(const TensorType& input, const Attrs& attrs) {
  check_floating(input, "padding");
  const auto& padding = attrs.integers("padding");
  const size_t rank = input.shape.size();
  check(rank == dims + 1 || rank == dims + 2, "padding: wanted {} or {} dimensions, got shape {}",
        dims + 1, dims + 2, to_string(input.shape));
  check(padding.size() == 2 * dims, "padding: wanted {} sizes, got {}", 2 * dims, padding.size());
  Shape shape = input.shape;
  for (size_t i = 0; i < dims; ++i) {
    int64_t& size = shape[rank - 1 - i];
    const int64_t widest = std::max(padding[2 * i], padding[2 * i + 1]);
    check(size > 0 && (border == Border::replicate || widest < size),
          "padding: {} elements cannot be reflected {} times", size, widest);
    size += padding[2 * i] + padding[2 * i + 1];
    check(size > 0, "padding: nothing is left of dimension {} of shape {}", rank - 1 - i,
          to_string(input.shape));
  }
  return shape;
}

template <Border border, size_t dims>
ScratchVector<kernels::Taps> padding_taps(std::span<const int64_t> input, const Attrs& attrs) {
  const auto& padding = attrs.integers("padding");
  ScratchVector<kernels::Taps> taps(dims);
  for (size_t i = 0; i < dims; ++i) {
    const int64_t size = input[input.size() - 1 - i];
    taps[dims - 1 - i] = border == Border::reflect
                             ? kernels::reflecting_taps(size, padding[2 * i], padding[2 * i + 1])
                             : kernels::replicating_taps(size, padding[2 * i], padding[2 * i + 1]);
  }
  return taps;
}

template <Border border, size_t dims>
std::vector<TensorType> infer_pad(const OpView& op) {
  return {{op.type(0).dtype, padded<border, dims>(op.type(0), op.attrs())}};
}

template <Border border, size_t dims>
void run_pad(const KernelCall& call) {
  kernels::resample(call.inputs[0], padding_taps<border, dims>(call.inputs[0].sizes, call.attrs),
                    call.outputs[0], call.pool);
}

template <Border border, size_t dims>
std::vector<TensorType> infer_pad_backward(const OpView& op) {
  const Shape shape = padded<border, dims>(op.type(1), op.attrs());
  OperandChecks(op, "padding").floating(0, "the gradient", shape);
  return {op.type(1)};
}

template <Border border, size_t dims>
void run_pad_backward(const KernelCall& call) {
  kernels::resample_backward(call.inputs[0],
                             padding_taps<border, dims>(call.outputs[0].sizes, call.attrs),
                             call.outputs[0], call.pool);
}

// ---- Pixel shuffles: [.., c r r, h, w] to [.., c, h r, w r] and back

std::vector<TensorType> infer_shuffle(const OpView& op) {
  const int64_t r = op.attrs().integer("upscale_factor");
  Shape shape = op.shape(0);
  const size_t rank = shape.size();
  check(rank >= 3 && r >= 1 && shape[rank - 3] % (r * r) == 0,
        "pixel_shuffle: shape {} cannot be upscaled by {}", to_string(shape), r);
  shape[rank - 3] /= r * r;
  shape[rank - 2] = saturating_product({shape[rank - 2], r});
  shape[rank - 1] = saturating_product({shape[rank - 1], r});
  return {{op.type(0).dtype, shape}};
}

std::vector<TensorType> infer_unshuffle(const OpView& op) {
  const int64_t r = op.attrs().integer("downscale_factor");
  Shape shape = op.shape(0);
  const size_t rank = shape.size();
  check(rank >= 3 && r >= 1 && shape[rank - 2] % r == 0 && shape[rank - 1] % r == 0,
        "pixel_unshuffle: shape {} cannot be downscaled by {}", to_string(shape), r);
  shape[rank - 3] = saturating_product({shape[rank - 3], r, r});
  shape[rank - 2] /= r;
  shape[rank - 1] /= r;
  return {{op.type(0).dtype, shape}};
}

Cost cost_of_move(const OpView&, std::span<const TensorType> results) {
  return CopyCost{2 * bytes(results[0])};
}

std::vector<ValueId> decompose_shuffle(Builder& b, const Node& node) {
  const int64_t r = node.attrs.integer("upscale_factor");
  const Shape x = b.shape(node.operands[0]);
  const size_t rank = x.size();
  const int64_t outer = numel(std::span(x).first(rank - 3));
  const int64_t c = x[rank - 3] / (r * r);
  const int64_t h = x[rank - 2];
  const int64_t w = x[rank - 1];
  const ValueId parts = b.reshape(node.operands[0], {outer * c, r, r, h, w});
  const Ints order{0, 3, 1, 4, 2};
  const ValueId shuffled = b.add("copy", {b.permute(parts, order)});
  Shape shape(x.begin(), x.end() - 3);
  shape.insert(shape.end(), {c, h * r, w * r});
  return {b.reshape(shuffled, shape)};
}

std::vector<ValueId> decompose_unshuffle(Builder& b, const Node& node) {
  const int64_t r = node.attrs.integer("downscale_factor");
  const Shape x = b.shape(node.operands[0]);
  const size_t rank = x.size();
  const int64_t outer = numel(std::span(x).first(rank - 2));
  const int64_t h = x[rank - 2] / r;
  const int64_t w = x[rank - 1] / r;
  const ValueId parts = b.reshape(node.operands[0], {outer, h, r, w, r});
  const Ints order{0, 2, 4, 1, 3};
  const ValueId gathered = b.add("copy", {b.permute(parts, order)});
  Shape shape(x.begin(), x.end() - 3);
  shape.insert(shape.end(), {x[rank - 3] * r * r, h, w});
  return {b.reshape(gathered, shape)};
}

// ---- Rows

template <Mode mode, size_t dims>
void add_resizing(std::vector<OpDef>& rows, const std::string& name) {
  constexpr bool aligns = mode == Mode::linear || mode == Mode::cubic;
  const std::string align = aligns ? ", align_corners" : "";
  AttrSchema sizes = {maybe(ints("output_size")), maybe(numbers("scale_factors"))};
  std::string scales;
  for (const std::string_view factor : scale_names(dims)) {
    const std::string scale(factor);
    sizes.push_back(maybe(number(scale)));
    scales += ", " + scale;
  }
  if (aligns) sizes.push_back(flag("align_corners", false));
  AttrSchema backward_sizes = sizes;
  backward_sizes.push_back(ints("input_size"));

  const auto last = [](const Shape& shape) {
    return Shape(shape.end() - static_cast<std::ptrdiff_t>(dims), shape.end());
  };
  const auto batch = [](Shape shape) {
    shape.insert(shape.begin(), {2, 3});
    return shape;
  };
  const Shape small = last({3, 4, 5});
  const Shape large = last({5, 7, 9});
  const Attrs to_size = {{"output_size", large}};
  Attrs by_scale = {{"output_size", last({4, 9, 8})}};
  const std::vector<double> factors = {1.5, 2.25, 1.6};
  for (size_t d = 0; d < dims; ++d) by_scale.set(scale_names(dims)[d], factors[3 - dims + d]);
  const Attrs by_factors = {
      {"scale_factors",
       std::vector<double>(factors.end() - static_cast<std::ptrdiff_t>(dims), factors.end())}};
  const Attrs smaller = {{"output_size", last({2, 3, 3})}};
  Attrs back = to_size;
  back.set("input_size", batch(small));
  Attrs aligned = back;
  Attrs aligned_forward = to_size;
  if (aligns) aligned.set("align_corners", true);
  if (aligns) aligned_forward.set("align_corners", true);
  rows.push_back(
      {.name = name,
       .operands = "input",
       .results = "out",
       .doc = aligns ? "Images resized by interpolation."
                     : "Images resized by repeating the nearest pixel.",
       .kind = Kind::gather,
       .attrs = sizes,
       .aten = {{name + ".vec", "input | output_size" + align + ", scale_factors"},
                {name, "self | output_size" + align + scales}},
       .infer = infer_resize<dims>,
       .cost = cost_of_resampling,
       .cpu = run_resize<mode>,
       .samples = {Sample{{reals(batch(small))}, to_size}, Sample{{reals(batch(small))}, by_scale},
                   Sample{{reals(batch(small))}, by_factors},
                   Sample{{reals(batch(small))}, smaller},
                   Sample{{reals(batch(small))}, aligned_forward}}});
  rows.push_back(
      {.name = name + "_backward",
       .operands = "grad_output",
       .results = "grad_input",
       .doc = "Gradients of resized images brought back to the pixels they came from.",
       .kind = Kind::gather,
       .attrs = backward_sizes,
       .aten = {{name + "_backward.vec",
                 "grad_output | output_size, input_size" + align + ", scale_factors"},
                {name + "_backward", "grad_output | output_size, input_size" + align + scales}},
       .infer = infer_resize_backward<dims>,
       .cost = cost_of_resampling,
       .cpu = run_resize_backward<mode>,
       .samples = {Sample{{reals(batch(large))}, back}, Sample{{reals(batch(large))}, aligned}}});
}

template <Border border, size_t dims>
void add_padding(std::vector<OpDef>& rows) {
  const std::string name = (border == Border::reflect ? "reflection_pad" : "replication_pad") +
                           std::to_string(dims) + "d";
  Shape shape{2, 3};
  Shape larger = shape;
  Ints padding;
  for (size_t i = 0; i < dims; ++i) {
    shape.push_back(4);
    larger.push_back(4 + 1 + 2);
    padding.insert(padding.end(), {1, 2});
  }
  rows.push_back({.name = name,
                  .operands = "self",
                  .results = "out",
                  .doc = border == Border::reflect
                             ? "A border that mirrors what lies inside it."
                             : "A border that repeats the outermost elements.",
                  .kind = Kind::gather,
                  .attrs = {ints("padding")},
                  .aten = {{name, "self | padding"}},
                  .infer = infer_pad<border, dims>,
                  .cost = cost_of_resampling,
                  .cpu = run_pad<border, dims>,
                  .samples = {Sample{{reals(shape)}, {{"padding", padding}}}}});
  rows.push_back({.name = name + "_backward",
                  .operands = "grad_output, self",
                  .results = "grad_input",
                  .doc = "Gradients of a border added to the elements it was made from.",
                  .kind = Kind::gather,
                  .attrs = {ints("padding")},
                  .aten = {{name + "_backward", "grad_output, self | padding"}},
                  .infer = infer_pad_backward<border, dims>,
                  .cost = cost_of_resampling,
                  .cpu = run_pad_backward<border, dims>,
                  .samples = {Sample{{reals(larger), reals(shape)}, {{"padding", padding}}}}});
}

std::vector<OpDef> make_rows() {
  std::vector<OpDef> rows;
  add_resizing<Mode::nearest, 1>(rows, "upsample_nearest1d");
  add_resizing<Mode::nearest, 2>(rows, "upsample_nearest2d");
  add_resizing<Mode::nearest, 3>(rows, "upsample_nearest3d");
  add_resizing<Mode::nearest_exact, 1>(rows, "_upsample_nearest_exact1d");
  add_resizing<Mode::nearest_exact, 2>(rows, "_upsample_nearest_exact2d");
  add_resizing<Mode::nearest_exact, 3>(rows, "_upsample_nearest_exact3d");
  add_resizing<Mode::linear, 1>(rows, "upsample_linear1d");
  add_resizing<Mode::linear, 2>(rows, "upsample_bilinear2d");
  add_resizing<Mode::linear, 3>(rows, "upsample_trilinear3d");
  add_resizing<Mode::cubic, 2>(rows, "upsample_bicubic2d");
  add_padding<Border::reflect, 1>(rows);
  add_padding<Border::reflect, 2>(rows);
  add_padding<Border::reflect, 3>(rows);
  add_padding<Border::replicate, 1>(rows);
  add_padding<Border::replicate, 2>(rows);
  add_padding<Border::replicate, 3>(rows);
  rows.push_back({.name = "pixel_shuffle",
                  .operands = "self",
                  .results = "out",
                  .doc = "Channels moved into squares of pixels.",
                  .kind = Kind::composite,
                  .attrs = {integer("upscale_factor")},
                  .aten = {{"pixel_shuffle", "self | upscale_factor"}},
                  .infer = infer_shuffle,
                  .cost = cost_of_move,
                  .decompose = decompose_shuffle,
                  .samples = {Sample{{reals({2, 8, 3, 4})}, {{"upscale_factor", attr(2)}}}}});
  rows.push_back({.name = "pixel_unshuffle",
                  .operands = "self",
                  .results = "out",
                  .doc = "Squares of pixels moved into channels.",
                  .kind = Kind::composite,
                  .attrs = {integer("downscale_factor")},
                  .aten = {{"pixel_unshuffle", "self | downscale_factor"}},
                  .infer = infer_unshuffle,
                  .cost = cost_of_move,
                  .decompose = decompose_unshuffle,
                  .samples = {Sample{{reals({2, 2, 6, 8})}, {{"downscale_factor", attr(2)}}}}});
  return rows;
}

}  // namespace

std::span<const OpDef> families::resample() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
