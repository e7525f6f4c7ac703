// Images as columns of patches and back, and the gradient of sliding windows.
#include "tessera/kernels/patches.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ops/families.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

using Pair = std::array<int64_t, 2>;

Pair pair_of(const Attrs& attrs, std::string_view name, int64_t least) {
  const auto& values = attrs.integers(name);
  check(values.size() == 1 || values.size() == 2, "unfold: {} needs 2 numbers, got {}", name,
        values.size());
  const Pair pair{values.front(), values.back()};
  check(pair[0] >= least && pair[1] >= least, "unfold: {} must be at least {}, got {}", name, least,
        to_string(values));
  return pair;
}

kernels::PatchParams params_of(const Attrs& attrs) {
  return {pair_of(attrs, "kernel_size", 1), pair_of(attrs, "dilation", 1),
          pair_of(attrs, "padding", 0), pair_of(attrs, "stride", 1)};
}

void check_floating(const TensorType& type, std::string_view what) {
  check(is_floating(type.dtype), ErrorKind::type, "{}: wanted floating point, got {}", what,
        name_of(type.dtype));
}

Cost cost_of_patches(const OpView& op, std::span<const TensorType> results) {
  const int64_t larger = std::max(numel(op.shape(0)), numel(results[0].shape));
  return GatherCost{larger, 8 * larger};
}

int64_t window_count(const kernels::PatchParams& params, Pair image) {
  const Pair windows = params.windows(image);
  check(windows[0] > 0 && windows[1] > 0, "unfold: no window of size {} fits an image of size {}",
        to_string(params.kernel), to_string(image));
  return saturating_product({windows[0], windows[1]});
}

std::vector<TensorType> infer_im2col(const OpView& op) {
  check_floating(op.type(0), "unfold");
  const Shape& shape = op.shape(0);
  check(shape.size() == 3 || shape.size() == 4,
        "unfold: wanted [batch, channels, height, width], got shape {}", to_string(shape));
  const auto params = params_of(op.attrs());
  const size_t rank = shape.size();
  Shape out(shape.begin(), shape.end() - 2);
  out.back() = saturating_product({out.back(), params.kernel[0], params.kernel[1]});
  out.push_back(window_count(params, {shape[rank - 2], shape[rank - 1]}));
  return {{op.type(0).dtype, out}};
}

void run_im2col(const KernelCall& call) {
  kernels::images_to_columns(call.inputs[0], params_of(call.attrs), call.outputs[0], call.pool);
}

std::vector<TensorType> infer_col2im(const OpView& op) {
  check_floating(op.type(0), "fold");
  const Shape& shape = op.shape(0);
  const auto params = params_of(op.attrs());
  const Pair image = pair_of(op.attrs(), "output_size", 1);
  const int64_t area = params.kernel[0] * params.kernel[1];
  const int64_t windows = window_count(params, image);
  check((shape.size() == 2 || shape.size() == 3) && shape[shape.size() - 2] % area == 0 &&
            shape.back() == windows,
        "fold: wanted columns of {} times the channels by {} windows, got shape {}", area, windows,
        to_string(shape));
  Shape out(shape.begin(), shape.end() - 1);
  out.back() /= area;
  out.insert(out.end(), image.begin(), image.end());
  return {{op.type(0).dtype, out}};
}

void run_col2im(const KernelCall& call) {
  kernels::columns_to_images(call.inputs[0], params_of(call.attrs), call.outputs[0], call.pool);
}

std::vector<TensorType> infer_unfold_backward(const OpView& op) {
  check_floating(op.type(0), "unfold_backward");
  const Shape& sizes = op.attrs().integers("input_sizes");
  const int64_t size = op.attrs().integer("size");
  const int64_t step = op.attrs().integer("step");
  const int64_t dim = wrap_dim(op.attrs().integer("dim"), static_cast<int64_t>(sizes.size()));
  check_sizes(sizes, op.type(0).dtype, "unfold_backward");
  check(size >= 0 && step >= 1 && (sizes.empty() || size <= sizes[static_cast<size_t>(dim)]),
        "unfold_backward: windows of size {} at every {} elements do not fit sizes {}", size, step,
        to_string(sizes));
  Shape wanted = sizes;
  if (!sizes.empty()) {
    int64_t& length = wanted[static_cast<size_t>(dim)];
    length = (length - size) / step + 1;
  }
  wanted.push_back(size);
  check(op.shape(0) == wanted, "unfold_backward: the gradient has shape {}, wanted {}",
        to_string(op.shape(0)), to_string(wanted));
  return {{op.type(0).dtype, sizes}};
}

void run_unfold_backward(const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  kernels::add_windows(call.inputs[0], wrap_dim(call.attrs.integer("dim"), out.rank()),
                       call.attrs.integer("step"), out, call.pool);
}

std::vector<OpDef> make_rows() {
  const AttrSchema window = {ints("kernel_size"), ints("dilation", {1, 1}), ints("padding", {0, 0}),
                             ints("stride", {1, 1})};
  const Attrs odd = {{"kernel_size", Ints{3, 2}},
                     {"dilation", Ints{1, 2}},
                     {"padding", Ints{1, 0}},
                     {"stride", Ints{2, 1}}};
  const Attrs plain = {{"kernel_size", Ints{2, 2}},
                       {"dilation", Ints{1, 1}},
                       {"padding", Ints{0, 0}},
                       {"stride", Ints{2, 2}}};
  const auto sized = [](Attrs attrs, Ints size) {
    attrs.set("output_size", std::move(size));
    return attrs;
  };
  return {
      {.name = "im2col",
       .operands = "self",
       .results = "out",
       .doc = "Patches of images as columns.",
       .kind = Kind::gather,
       .attrs = window,
       .aten = {{"im2col", "self | kernel_size, dilation, padding, stride"}},
       .infer = infer_im2col,
       .cost = cost_of_patches,
       .cpu = run_im2col,
       .samples = {Sample{{reals({2, 3, 6, 7})}, odd}, Sample{{reals({3, 6, 8})}, plain}}},
      {.name = "col2im",
       .operands = "self",
       .results = "out",
       .doc = "Columns of patches added up to images.",
       .kind = Kind::gather,
       .attrs = joined(window, {ints("output_size")}),
       .aten = {{"col2im", "self | output_size, kernel_size, dilation, padding, stride"}},
       .infer = infer_col2im,
       .cost = cost_of_patches,
       .cpu = run_col2im,
       .samples = {Sample{{reals({2, 18, 15})}, sized(odd, {6, 7})},
                   Sample{{reals({12, 12})}, sized(plain, {6, 8})}}},
      {.name = "unfold_backward",
       .operands = "grad_in",
       .results = "out",
       .doc = "Gradients of sliding windows added up.",
       .kind = Kind::gather,
       .attrs = {ints("input_sizes"), integer("dim"), integer("size"), integer("step")},
       .aten = {{"unfold_backward", "grad_in | input_sizes, dim, size, step"}},
       .infer = infer_unfold_backward,
       .cost = cost_of_patches,
       .cpu = run_unfold_backward,
       .samples = {Sample{{reals({3, 3, 4, 3})},
                          {{"input_sizes", Ints{3, 7, 4}},
                           {"dim", attr(1)},
                           {"size", attr(3)},
                           {"step", attr(2)}}},
                   Sample{{reals({5, 2})},
                          {{"input_sizes", Ints{6}},
                           {"dim", attr(-1)},
                           {"size", attr(2)},
                           {"step", attr(1)}}}}},
  };
}

}  // namespace

std::span<const OpDef> families::patches() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
