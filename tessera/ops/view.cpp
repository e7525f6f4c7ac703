// Operators that only move elements: other geometries over a tensor, writes into windows of one,
// and constants.
#include <algorithm>
#include <cstring>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/geometry.h"
#include "tessera/kernels/copy.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/families.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

std::vector<TensorType> same_as_first(const OpView& op) { return {op.type(0)}; }

Cost cost_of_copy(const OpView&, std::span<const TensorType> results) {
  return CopyCost{2 * bytes(results[0])};
}

Cost cost_of_source(const OpView&, std::span<const TensorType> results) {
  return CopyCost{bytes(results[0])};
}

Cost cost_of_nothing(const OpView&, std::span<const TensorType>) { return CopyCost{0}; }

// A tensor that lies in another one's memory, with room for its sizes and strides.
struct Window {
  Shape sizes;
  Strides strides;
  TensorView view;

  Window(const TensorView& whole, Shape window_sizes, Strides window_strides, int64_t offset)
      : sizes(std::move(window_sizes)), strides(std::move(window_strides)), view(whole) {
    view.data += offset * static_cast<int64_t>(size_of(whole.dtype));
    view.sizes = sizes;
    view.strides = strides;
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
};

Shape shape_of(const TensorView& x) { return {x.sizes.begin(), x.sizes.end()}; }
Strides strides_of(const TensorView& x) { return {x.strides.begin(), x.strides.end()}; }

void check_shape(const Shape& shape) {
  for (const int64_t size : shape)
    check(size >= 0, "a size cannot be negative: {}", to_string(shape));
}

void check_inside(const Geometry& window, const Shape& whole, std::string_view what) {
  check_shape(window.shape);
  check(window.shape.size() == window.strides.size(), "{}: {} sizes but {} strides", what,
        window.shape.size(), window.strides.size());
  bool negative = window.offset < 0;
  for (const int64_t stride : window.strides) negative |= stride < 0;
  check(!negative, "{}: strides and offset cannot be negative, got {} and {}", what,
        to_string(window.strides), window.offset);
  check(extent(window) <= numel(whole),
        "{}: sizes {} with strides {} at offset {} reach outside a tensor of shape {}", what,
        to_string(window.shape), to_string(window.strides), window.offset, to_string(whole));
}

// ---- view, write_view

std::vector<TensorType> infer_view(const OpView& op) {
  const Geometry geometry{op.attrs().integers("shape"), op.attrs().integers("strides"),
                          op.attrs().integer("offset")};
  check_inside(geometry, op.shape(0), "view");
  return {{op.type(0).dtype, geometry.shape}};
}

// Materialises the view, for constants and for consumers that need their operand dense.
void run_view(const KernelCall& call) {
  const TensorView& x = call.inputs[0];
  const Geometry outer{call.attrs.integers("shape"), call.attrs.integers("strides"),
                       call.attrs.integer("offset")};
  if (const auto direct = compose({shape_of(x), strides_of(x), 0}, outer)) {
    const Window window(x, direct->shape, direct->strides, direct->offset);
    return kernels::copy(window.view, call.outputs[0], call.pool);
  }
  const kernels::Dense dense_x(x, call.pool);
  const Window window(dense_x.view(), outer.shape, outer.strides, outer.offset);
  kernels::copy(window.view, call.outputs[0], call.pool);
}

std::vector<TensorType> infer_write_view(const OpView& op) {
  const Geometry window{op.shape(1), op.attrs().integers("strides"), op.attrs().integer("offset")};
  check_inside(window, op.shape(0), "write_view");
  for (size_t i = 0; i < window.shape.size(); ++i) {
    check(window.shape[i] <= 1 || window.strides[i] != 0,
          "write_view: cannot write {} values of dimension {} to one place; write to a clone "
          "instead of an expanded tensor",
          window.shape[i], i);
  }
  check(op.type(0).dtype == op.type(1).dtype, "write_view: cannot write {} into {}",
        name_of(op.type(1).dtype), name_of(op.type(0).dtype));
  return {op.type(0)};
}

void run_write_view(const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  const TensorView& source = call.inputs[1];
  if (call.inputs[0].data != out.data) kernels::copy(call.inputs[0], out, call.pool);
  const Window window(out, shape_of(source), call.attrs.integers("strides"),
                      call.attrs.integer("offset"));
  kernels::copy(source, window.view, call.pool);
}

Cost cost_of_write_view(const OpView& op, std::span<const TensorType>) {
  return GatherCost{numel(op.shape(1)), 2 * bytes(op.type(1))};
}

// ---- copy, fill, constant

void run_copy(const KernelCall& call) { kernels::copy(call.inputs[0], call.outputs[0], call.pool); }

std::vector<TensorType> infer_fill(const OpView& op) {
  check_shape(op.attrs().integers("shape"));
  return {{op.attrs().dtype("dtype"), op.attrs().integers("shape")}};
}

void run_fill(const KernelCall& call) {
  kernels::fill(call.attrs.number("value"), call.outputs[0], call.pool);
}

std::vector<TensorType> infer_constant(const OpView& op) {
  const auto types = infer_fill(op);
  const Blob& data = op.attrs().blob("data");
  check(data && static_cast<int64_t>(data->size()) == bytes(types[0]),
        "a constant of type {} has {} bytes, not {}", to_string(types[0]), bytes(types[0]),
        data ? data->size() : 0);
  return types;
}

void run_constant(const KernelCall& call) {
  const Blob& data = call.attrs.blob("data");
  if (!data->empty()) std::memcpy(call.outputs[0].data, data->data(), data->size());
}

// ---- cat, stack

// PyTorch leaves tensors of shape [0] out, whatever the others' rank.
bool is_nothing(std::span<const int64_t> shape) { return shape.size() == 1 && shape[0] == 0; }

std::vector<TensorType> infer_cat(const OpView& op) {
  check(op.count() > 0, "cat needs at least one tensor");
  TensorType out = op.type(0);
  int64_t dim = -1;
  for (size_t i = 0; i < op.count(); ++i) {
    check(op.type(i).dtype == out.dtype, "cat: tensors of types {} and {} cannot be joined",
          name_of(out.dtype), name_of(op.type(i).dtype));
    if (is_nothing(op.shape(i))) continue;
    const Shape& shape = op.shape(i);
    check(!shape.empty(), "cat: tensor {} is a scalar; use stack to join scalars", i);
    if (dim < 0) {
      dim = wrap_dim(op.attrs().integer("dim"), static_cast<int64_t>(shape.size()));
      out.shape = shape;
      continue;
    }
    bool fits = shape.size() == out.shape.size();
    for (size_t d = 0; fits && d < shape.size(); ++d) {
      fits = d == static_cast<size_t>(dim) || shape[d] == out.shape[d];
    }
    check(fits, "cat: tensors of shapes {} and {} differ in more than dimension {}",
          to_string(out.shape), to_string(shape), dim);
    out.shape[static_cast<size_t>(dim)] += shape[static_cast<size_t>(dim)];
  }
  return {out};
}

void run_cat(const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  const auto dim = static_cast<size_t>(wrap_dim(call.attrs.integer("dim"), out.rank()));
  int64_t at = 0;
  for (const TensorView& x : call.inputs) {
    if (is_nothing(x.sizes)) continue;
    const Window window(out, shape_of(x), strides_of(out), at * out.strides[dim]);
    kernels::copy(x, window.view, call.pool);
    at += x.sizes[dim];
  }
}

std::vector<TensorType> infer_stack(const OpView& op) {
  check(op.count() > 0, "stack needs at least one tensor");
  TensorType out = op.type(0);
  for (size_t i = 1; i < op.count(); ++i) {
    check(op.type(i) == out, "stack needs tensors of one type and shape, got {} and {}",
          to_string(out), to_string(op.type(i)));
  }
  const int64_t dim =
      wrap_dim(op.attrs().integer("dim"), static_cast<int64_t>(out.shape.size()) + 1);
  out.shape.insert(out.shape.begin() + dim, static_cast<int64_t>(op.count()));
  return {out};
}

std::vector<ValueId> decompose_stack(Builder& b, const Node& node) {
  Shape shape = b.shape(node.operands[0]);
  const int64_t dim = wrap_dim(node.attrs.integer("dim"), static_cast<int64_t>(shape.size()) + 1);
  shape.insert(shape.begin() + dim, 1);
  std::vector<ValueId> slices;
  for (const ValueId operand : node.operands) slices.push_back(b.reshape(operand, shape));
  return {b.add("cat", std::move(slices), {{"dim", dim}})};
}

// ---- flip, roll, constant_pad_nd, repeat

std::vector<TensorType> infer_flip(const OpView& op) {
  const auto rank = static_cast<int64_t>(op.shape(0).size());
  std::vector<bool> seen(static_cast<size_t>(std::max<int64_t>(rank, 1)));
  for (const int64_t dim : op.attrs().integers("dims")) {
    const auto d = static_cast<size_t>(wrap_dim(dim, rank));
    check(!seen[d], "flip: dimension {} is named twice", dim);
    seen[d] = true;
  }
  return {op.type(0)};
}

void run_flip(const KernelCall& call) {
  const TensorView& x = call.inputs[0];
  if (x.numel() == 0) return;
  Strides strides = strides_of(x);
  int64_t offset = 0;
  for (const int64_t dim : call.attrs.integers("dims")) {
    const auto d = static_cast<size_t>(wrap_dim(dim, x.rank()));
    if (d >= strides.size()) continue;  // a scalar's only dimension
    offset += (x.sizes[d] - 1) * strides[d];
    strides[d] = -strides[d];
  }
  const Window reversed(x, shape_of(x), strides, offset);
  kernels::copy(reversed.view, call.outputs[0], call.pool);
}

std::vector<TensorType> infer_roll(const OpView& op) {
  const auto& shifts = op.attrs().integers("shifts");
  const auto& dims = op.attrs().integers("dims");
  check(dims.empty() ? shifts.size() == 1 : shifts.size() == dims.size(),
        "roll: {} shifts for {} dimensions", shifts.size(), dims.size());
  for (const int64_t dim : dims) wrap_dim(dim, static_cast<int64_t>(op.shape(0).size()));
  return {op.type(0)};
}

// Copies x to out with index i of each dimension going to (i + shift) modulo its size: for each
// dimension the two runs that do not wrap around.
void copy_rolled(const TensorView& x, const TensorView& out, const std::vector<int64_t>& shifts,
                 size_t dim, ThreadPool& pool) {
  if (dim == x.sizes.size()) return kernels::copy(x, out, pool);
  const int64_t size = x.sizes[dim];
  const int64_t shift = shifts[dim];
  const auto run = [&](int64_t from, int64_t to, int64_t count) {
    if (count == 0) return;
    Shape sizes = shape_of(x);
    sizes[dim] = count;
    const Window source(x, sizes, strides_of(x), from * x.strides[dim]);
    const Window target(out, sizes, strides_of(out), to * out.strides[dim]);
    copy_rolled(source.view, target.view, shifts, dim + 1, pool);
  };
  run(0, shift, size - shift);
  run(size - shift, 0, shift);
}

void run_roll(const KernelCall& call) {
  const TensorView& x = call.inputs[0];
  const TensorView& out = call.outputs[0];
  if (x.numel() == 0) return;
  const auto& shifts = call.attrs.integers("shifts");
  const auto& dims = call.attrs.integers("dims");
  const auto modulo = [](int64_t shift, int64_t size) { return (shift % size + size) % size; };
  if (dims.empty()) {
    const kernels::Dense dense_x(x, call.pool);
    const Window flat_x(dense_x.view(), {x.numel()}, {1}, 0);
    const Window flat_out(out, {x.numel()}, {1}, 0);
    return copy_rolled(flat_x.view, flat_out.view, {modulo(shifts[0], x.numel())}, 0, call.pool);
  }
  std::vector<int64_t> by_dim(x.sizes.size(), 0);
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto d = static_cast<size_t>(wrap_dim(dims[i], x.rank()));
    if (d < by_dim.size()) by_dim[d] = modulo(by_dim[d] + shifts[i], x.sizes[d]);
  }
  copy_rolled(x, out, by_dim, 0, call.pool);
}

std::vector<TensorType> infer_pad(const OpView& op) {
  const auto& pad = op.attrs().integers("pad");
  TensorType out = op.type(0);
  const size_t rank = out.shape.size();
  check(pad.size() % 2 == 0 && pad.size() <= 2 * rank,
        "constant_pad_nd: {} pad sizes do not fit a tensor of shape {}; give two for each of its "
        "last dimensions",
        pad.size(), to_string(out.shape));
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    int64_t& size = out.shape[rank - 1 - i];
    const int64_t old_size = size;
    size += pad[2 * i] + pad[2 * i + 1];
    check(size >= 0, "constant_pad_nd: padding {} and {} leaves nothing of a dimension of size {}",
          pad[2 * i], pad[2 * i + 1], old_size);
  }
  return {out};
}

void run_pad(const KernelCall& call) {
  const TensorView& x = call.inputs[0];
  const TensorView& out = call.outputs[0];
  kernels::fill(call.attrs.number("value"), out, call.pool);
  const auto& pad = call.attrs.integers("pad");
  Shape sizes = shape_of(x);
  int64_t from = 0;
  int64_t to = 0;
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    const size_t d = sizes.size() - 1 - i;
    // Negative padding crops.
    const int64_t first = std::max<int64_t>(0, -pad[2 * i]);
    const int64_t last = std::min(x.sizes[d], x.sizes[d] + pad[2 * i + 1]);
    sizes[d] = std::max<int64_t>(0, last - first);
    from += first * x.strides[d];
    to += std::max<int64_t>(0, pad[2 * i]) * out.strides[d];
  }
  if (numel(sizes) == 0) return;
  const Window source(x, sizes, strides_of(x), from);
  const Window target(out, sizes, strides_of(out), to);
  kernels::copy(source.view, target.view, call.pool);
}

std::vector<TensorType> infer_repeat(const OpView& op) {
  const auto& repeats = op.attrs().integers("repeats");
  const Shape& shape = op.shape(0);
  check(repeats.size() >= shape.size(),
        "repeat: {} repeats are too few for a tensor of {} dimensions", repeats.size(),
        shape.size());
  check_shape(repeats);
  Shape out = repeats;
  for (size_t i = 0; i < shape.size(); ++i) out[out.size() - shape.size() + i] *= shape[i];
  return {{op.type(0).dtype, out}};
}

void run_repeat(const KernelCall& call) {
  const TensorView& x = call.inputs[0];
  const auto& repeats = call.attrs.integers("repeats");
  const size_t lead = repeats.size() - x.sizes.size();
  // Each dimension as (repeat, element), so that repeating is reading with stride 0.
  Shape sizes;
  Strides strides;
  for (size_t i = 0; i < repeats.size(); ++i) {
    sizes.push_back(repeats[i]);
    strides.push_back(0);
    sizes.push_back(i < lead ? 1 : x.sizes[i - lead]);
    strides.push_back(i < lead ? 0 : x.strides[i - lead]);
  }
  const Window source(x, sizes, strides, 0);
  const Window target(call.outputs[0], sizes, contiguous_strides(sizes), 0);
  kernels::copy(source.view, target.view, call.pool);
}

// ---- tril, triu

std::vector<TensorType> infer_triangle(const OpView& op) {
  check(op.shape(0).size() >= 2, "a triangle needs a matrix, not a tensor of shape {}",
        to_string(op.shape(0)));
  return {op.type(0)};
}

template <bool lower>
void run_triangle(const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  if (out.numel() == 0) return;
  const kernels::Dense x(call.inputs[0], call.pool);
  const auto item = static_cast<int64_t>(size_of(out.dtype));
  const int64_t cols = out.sizes[out.sizes.size() - 1];
  const int64_t rows = out.sizes[out.sizes.size() - 2];
  const int64_t diagonal = call.attrs.integer("diagonal");
  call.pool.run_ranges(out.numel() / cols, std::max<int64_t>(1, 32768 / cols),
                       [&](int64_t begin, int64_t end) {
                         for (int64_t row = begin; row < end; ++row) {
                           // Kept: columns up to row + diagonal (lower), or from there on (upper).
                           const int64_t edge = row % rows + diagonal + (lower ? 1 : 0);
                           const int64_t cut = std::clamp<int64_t>(edge, 0, cols);
                           std::byte* to = out.data + row * cols * item;
                           const std::byte* from = x.view().data + row * cols * item;
                           const int64_t first = lower ? 0 : cut;
                           const int64_t last = lower ? cut : cols;
                           std::memset(to, 0, static_cast<size_t>(cols * item));
                           std::memcpy(to + first * item, from + first * item,
                                       static_cast<size_t>((last - first) * item));
                         }
                       });
}

// ---- slice_backward, select_backward

// Where a slice lies in the tensor it was taken from, row-major.
Geometry slice_window(const Shape& sizes, int64_t dim, int64_t start, int64_t end, int64_t step) {
  check(step > 0, "a slice's step must be positive, got {}", step);
  const auto d = static_cast<size_t>(wrap_dim(dim, static_cast<int64_t>(sizes.size())));
  check(d < sizes.size(), "a scalar has no dimension to slice");
  const int64_t size = sizes[d];
  const auto wrapped = [&](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size);
  };
  start = wrapped(start);
  end = std::max(start, wrapped(end));
  Geometry window = dense(sizes);
  window.shape[d] = (end - start + step - 1) / step;
  window.offset = start * window.strides[d];
  window.strides[d] *= step;
  return window;
}

Geometry slice_window(const Attrs& attrs) {
  return slice_window(attrs.integers("input_sizes"), attrs.integer("dim"), attrs.integer("start"),
                      attrs.integer("end"), attrs.integer("step"));
}

Geometry select_window(const Attrs& attrs) {
  const auto& sizes = attrs.integers("input_sizes");
  const int64_t dim = wrap_dim(attrs.integer("dim"), static_cast<int64_t>(sizes.size()));
  check(!sizes.empty(), "a scalar has no dimension to select from");
  const int64_t size = sizes[static_cast<size_t>(dim)];
  int64_t index = attrs.integer("index");
  check(index >= -size && index < size, "index {} is outside dimension {} of size {}", index, dim,
        size);
  if (index < 0) index += size;
  Geometry window = slice_window(sizes, dim, index, index + 1, 1);
  window.shape.erase(window.shape.begin() + dim);
  window.strides.erase(window.strides.begin() + dim);
  return window;
}

template <Geometry (*window_of)(const Attrs&)>
std::vector<TensorType> infer_window_backward(const OpView& op) {
  const Geometry window = window_of(op.attrs());
  check(window.shape == op.shape(0), "a gradient of shape {} does not fit a window of shape {}",
        to_string(op.shape(0)), to_string(window.shape));
  return {{op.type(0).dtype, op.attrs().integers("input_sizes")}};
}

template <Geometry (*window_of)(const Attrs&)>
std::vector<ValueId> decompose_window_backward(Builder& b, const Node& node) {
  const ValueId grad = node.operands[0];
  const Geometry window = window_of(node.attrs);
  const ValueId zeros = b.add("fill", {},
                              {{"shape", node.attrs.integers("input_sizes")},
                               {"value", 0.0},
                               {"dtype", b.type(grad).dtype}});
  return {
      b.add("write_view", {zeros, grad}, {{"strides", window.strides}, {"offset", window.offset}})};
}

Blob sample_bytes(size_t count) {
  return std::make_shared<const std::vector<std::byte>>(count, std::byte{1});
}

std::vector<OpDef> make_rows() {
  const AttrSpec dtype{"dtype", AttrType::dtype};
  constexpr int64_t to_the_end = std::numeric_limits<int64_t>::max();
  return {
      {.name = "view",
       .operands = "x",
       .results = "out",
       .doc = "Another geometry over x's row-major elements.",
       .kind = Kind::view,
       .attrs = {ints("shape"), ints("strides"), integer("offset", 0)},
       .infer = infer_view,
       .cost = cost_of_nothing,
       .cpu = run_view,
       .samples =
           {Sample{{reals({4, 6})}, {{"shape", Ints{6, 4}}, {"strides", Ints{1, 6}}}},
            Sample{{reals({4, 6})},
                   {{"shape", Ints{2, 3, 5}}, {"strides", Ints{12, 2, 0}}, {"offset", attr(1)}}},
            Sample{{integers({8}, 0, 9, DType::u8)},
                   {{"shape", Ints{2, 4}}, {"strides", Ints{4, 1}}}}}},
      {.name = "write_view",
       .operands = "base, source",
       .results = "out",
       .doc = "base with source written into the window that strides and offset describe.",
       .kind = Kind::gather,
       .attrs = {ints("strides"), integer("offset", 0)},
       .traits = {.in_place = {{0, 0}}},
       .infer = infer_write_view,
       .cost = cost_of_write_view,
       .cpu = run_write_view,
       .samples = {Sample{{reals({4, 6}), reals({2, 3})},
                          {{"strides", Ints{12, 2}}, {"offset", attr(1)}}},
                   Sample{{integers({8}, -9, 9), integers({3}, -9, 9)}, {{"strides", Ints{2}}}}}},
      {.name = "copy",
       .operands = "x",
       .results = "out",
       .doc = "x in fresh memory.",
       .kind = Kind::gather,
       .aten = {{"clone", "self"}},
       .infer = same_as_first,
       .cost = cost_of_copy,
       .cpu = run_copy,
       .samples = {Sample{{reals({3, 5})}}, Sample{{integers({7}, 0, 2, DType::boolean)}}}},
      {.name = "fill",
       .operands = "",
       .results = "out",
       .doc = "A tensor with the same value everywhere.",
       .kind = Kind::source,
       .attrs = {ints("shape"), number("value"), dtype},
       .infer = infer_fill,
       .cost = cost_of_source,
       .cpu = run_fill,
       .samples = {Sample{{}, {{"shape", Ints{2, 3}}, {"value", 1.5}, {"dtype", DType::f32}}},
                   Sample{{}, {{"shape", Ints{}}, {"value", -3.0}, {"dtype", DType::i32}}},
                   Sample{{}, {{"shape", Ints{4}}, {"value", 1.0}, {"dtype", DType::boolean}}}}},
      {.name = "constant",
       .operands = "",
       .results = "out",
       .doc = "A tensor known when the program is made.",
       .kind = Kind::source,
       .attrs = {ints("shape"), dtype, {"data", AttrType::blob}},
       .infer = infer_constant,
       .cost = cost_of_source,
       .cpu = run_constant,
       .samples = {Sample{
           {}, {{"shape", Ints{2, 3}}, {"dtype", DType::i32}, {"data", sample_bytes(24)}}}}},
      {.name = "cat",
       .operands = "tensors*",
       .results = "out",
       .doc = "Tensors one after the other along a dimension.",
       .kind = Kind::gather,
       .attrs = {integer("dim", 0)},
       .aten = {{"cat", "tensors | dim"}},
       .traits = {.promotion = Promotion::common},
       .infer = infer_cat,
       .cost = cost_of_copy,
       .cpu = run_cat,
       .samples = {Sample{{reals({2, 3}), reals({1, 3}), reals({4, 3})}},
                   Sample{{reals({2, 3, 4}), reals({2, 1, 4})}, {{"dim", attr(-2)}}}}},
      {.name = "stack",
       .operands = "tensors*",
       .results = "out",
       .doc = "Tensors of one shape along a new dimension.",
       .kind = Kind::composite,
       .attrs = {integer("dim", 0)},
       .aten = {{"stack", "tensors | dim"}},
       .traits = {.promotion = Promotion::common},
       .infer = infer_stack,
       .cost = cost_of_copy,
       .decompose = decompose_stack,
       .samples = {Sample{{reals({2, 3}), reals({2, 3})}, {{"dim", attr(1)}}},
                   Sample{{reals({2, 3}), reals({2, 3}), reals({2, 3})}, {{"dim", attr(-1)}}}}},
      {.name = "flip",
       .operands = "x",
       .results = "out",
       .doc = "The order of elements reversed along dimensions.",
       .kind = Kind::gather,
       .attrs = {ints("dims")},
       .aten = {{"flip", "self | dims"}},
       .infer = infer_flip,
       .cost = cost_of_copy,
       .cpu = run_flip,
       .samples = {Sample{{reals({3, 4, 5})}, {{"dims", Ints{0, -1}}}},
                   Sample{{reals({6})}, {{"dims", Ints{0}}}}}},
      {.name = "roll",
       .operands = "x",
       .results = "out",
       .doc = "Elements shifted along dimensions, coming back at the other end.",
       .kind = Kind::gather,
       .attrs = {ints("shifts"), ints("dims", {})},
       .aten = {{"roll", "self | shifts, dims"}},
       .infer = infer_roll,
       .cost = cost_of_copy,
       .cpu = run_roll,
       .samples = {Sample{{reals({3, 4})}, {{"shifts", Ints{-5}}}},
                   Sample{{reals({3, 4, 5})}, {{"shifts", Ints{1, -2}}, {"dims", Ints{0, 2}}}}}},
      {.name = "constant_pad_nd",
       .operands = "x",
       .results = "out",
       .doc = "x with a border of one value; negative sizes crop.",
       .kind = Kind::gather,
       .attrs = {ints("pad"), number("value", 0)},
       .aten = {{"constant_pad_nd", "self | pad, value"}},
       .infer = infer_pad,
       .cost = cost_of_copy,
       .cpu = run_pad,
       .samples = {Sample{{reals({2, 3, 4})}, {{"pad", Ints{1, 2, 0, 3}}, {"value", 0.5}}},
                   Sample{{reals({4, 6})}, {{"pad", Ints{-1, 2, 1, -2}}}}}},
      {.name = "repeat",
       .operands = "x",
       .results = "out",
       .doc = "x several times along each dimension.",
       .kind = Kind::gather,
       .attrs = {ints("repeats")},
       .aten = {{"repeat", "self | repeats"}},
       .infer = infer_repeat,
       .cost = cost_of_copy,
       .cpu = run_repeat,
       .samples = {Sample{{reals({2, 3})}, {{"repeats", Ints{2, 1, 3}}}},
                   Sample{{reals({4})}, {{"repeats", Ints{3}}}}}},
      {.name = "tril",
       .operands = "x",
       .results = "out",
       .doc = "The lower triangle of matrices, zero elsewhere.",
       .kind = Kind::gather,
       .attrs = {integer("diagonal", 0)},
       .aten = {{"tril", "self | diagonal"}},
       .infer = infer_triangle,
       .cost = cost_of_copy,
       .cpu = run_triangle<true>,
       .samples = {Sample{{reals({4, 5})}}, Sample{{reals({2, 5, 4})}, {{"diagonal", attr(-2)}}}}},
      {.name = "triu",
       .operands = "x",
       .results = "out",
       .doc = "The upper triangle of matrices, zero elsewhere.",
       .kind = Kind::gather,
       .attrs = {integer("diagonal", 0)},
       .aten = {{"triu", "self | diagonal"}},
       .infer = infer_triangle,
       .cost = cost_of_copy,
       .cpu = run_triangle<false>,
       .samples = {Sample{{reals({4, 5})}}, Sample{{reals({2, 5, 4})}, {{"diagonal", attr(1)}}}}},
      {.name = "slice_backward",
       .operands = "grad_output",
       .results = "grad_input",
       .doc = "A slice's gradient at its place in zeros.",
       .kind = Kind::composite,
       .attrs = {ints("input_sizes"), integer("dim"), integer("start"), integer("end"),
                 integer("step")},
       .aten = {{"slice_backward", "grad_output | input_sizes, dim, start, end, step"}},
       .infer = infer_window_backward<slice_window>,
       .cost = cost_of_copy,
       .decompose = decompose_window_backward<slice_window>,
       .samples = {Sample{{reals({4, 2})},
                          {{"input_sizes", Ints{4, 6}},
                           {"dim", attr(1)},
                           {"start", attr(1)},
                           {"end", attr(5)},
                           {"step", attr(2)}}},
                   Sample{{reals({2, 6})},
                          {{"input_sizes", Ints{4, 6}},
                           {"dim", attr(-2)},
                           {"start", attr(-2)},
                           {"end", to_the_end},
                           {"step", attr(1)}}}}},
      {.name = "select_backward",
       .operands = "grad_output",
       .results = "grad_input",
       .doc = "The gradient of one index of a dimension at its place in zeros.",
       .kind = Kind::composite,
       .attrs = {ints("input_sizes"), integer("dim"), integer("index")},
       .aten = {{"select_backward", "grad_output | input_sizes, dim, index"}},
       .infer = infer_window_backward<select_window>,
       .cost = cost_of_copy,
       .decompose = decompose_window_backward<select_window>,
       .samples = {Sample{
           {reals({4, 5})},
           {{"input_sizes", Ints{4, 3, 5}}, {"dim", attr(1)}, {"index", attr(-1)}}}}},
  };
}

}  // namespace

std::span<const OpDef> families::view() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
