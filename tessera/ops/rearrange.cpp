// Operators that put elements in another order or place: joining, turning, padding, repeating,
// triangles.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/base/scratch.h"
#include "tessera/kernels/copy.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/families.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

Cost cost_of_copy(const OpView&, std::span<const TensorType> results) {
  return CopyCost{2 * bytes(results[0])};
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
    const kernels::Window window(out, kernels::shape_of(x), kernels::strides_of(out),
                                 at * out.strides[dim]);
    kernels::copy(x, window.view(), call.pool);
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
  ScratchShape strides = kernels::strides_of(x);
  int64_t offset = 0;
  for (const int64_t dim : call.attrs.integers("dims")) {
    const auto d = static_cast<size_t>(wrap_dim(dim, x.rank()));
    if (d >= strides.size()) continue;  // a scalar's only dimension
    offset += (x.sizes[d] - 1) * strides[d];
    strides[d] = -strides[d];
  }
  const kernels::Window reversed(x, kernels::shape_of(x), strides, offset);
  kernels::copy(reversed.view(), call.outputs[0], call.pool);
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
void copy_rolled(const TensorView& x, const TensorView& out, std::span<const int64_t> shifts,
                 size_t dim, ThreadPool& pool) {
  if (dim == x.sizes.size()) return kernels::copy(x, out, pool);
  const int64_t size = x.sizes[dim];
  const int64_t shift = shifts[dim];
  const auto run = [&](int64_t from, int64_t to, int64_t count) {
    if (count == 0) return;
    ScratchShape sizes = kernels::shape_of(x);
    sizes[dim] = count;
    const kernels::Window source(x, sizes, kernels::strides_of(x), from * x.strides[dim]);
    const kernels::Window target(out, sizes, kernels::strides_of(out), to * out.strides[dim]);
    copy_rolled(source.view(), target.view(), shifts, dim + 1, pool);
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
    const kernels::Window flat_x(dense_x.view(), {x.numel()}, {1}, 0);
    const kernels::Window flat_out(out, {x.numel()}, {1}, 0);
    const int64_t shift = modulo(shifts[0], x.numel());
    return copy_rolled(flat_x.view(), flat_out.view(), {&shift, 1}, 0, call.pool);
  }
  ScratchShape by_dim(x.sizes.size(), 0);
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
  ScratchShape sizes = kernels::shape_of(x);
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
  const kernels::Window source(x, sizes, kernels::strides_of(x), from);
  const kernels::Window target(out, sizes, kernels::strides_of(out), to);
  kernels::copy(source.view(), target.view(), call.pool);
}

std::vector<TensorType> infer_repeat(const OpView& op) {
  const auto& repeats = op.attrs().integers("repeats");
  const Shape& shape = op.shape(0);
  check(repeats.size() >= shape.size(),
        "repeat: {} repeats are too few for a tensor of {} dimensions", repeats.size(),
        shape.size());
  for (const int64_t count : repeats) check(count >= 0, "repeat: {} is negative", count);
  Shape out = repeats;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t& size = out[out.size() - shape.size() + i];
    size = saturating_product({size, shape[i]});
  }
  return {{op.type(0).dtype, out}};
}

void run_repeat(const KernelCall& call) {
  const TensorView& x = call.inputs[0];
  const auto& repeats = call.attrs.integers("repeats");
  const size_t lead = repeats.size() - x.sizes.size();
  // Each dimension as (repeat, element), so that repeating is reading with stride 0.
  ScratchShape sizes, strides;
  for (size_t i = 0; i < repeats.size(); ++i) {
    sizes.push_back(repeats[i]);
    strides.push_back(0);
    sizes.push_back(i < lead ? 1 : x.sizes[i - lead]);
    strides.push_back(i < lead ? 0 : x.strides[i - lead]);
  }
  const kernels::Window source(x, sizes, strides, 0);
  const kernels::Window target(call.outputs[0], sizes, scratch_strides(sizes), 0);
  kernels::copy(source.view(), target.view(), call.pool);
}

// ---- rot90

// Quarter turns from the first dimension towards the second, 0 to 3.
int64_t quarter_turns(const Attrs& attrs) { return (attrs.integer("k") % 4 + 4) % 4; }

Ints plane_of(const Attrs& attrs, const Shape& shape) {
  const auto rank = static_cast<int64_t>(shape.size());
  Ints dims = attrs.integers("dims");
  check(dims.size() == 2 && rank >= 2, "rot90: wanted two dimensions of shape {}, got {}",
        to_string(shape), to_string(dims));
  for (int64_t& dim : dims) dim = wrap_dim(dim, rank);
  check(dims[0] != dims[1], "rot90: dimension {} is named twice", dims[0]);
  return dims;
}

std::vector<TensorType> infer_rot90(const OpView& op) {
  const Ints dims = plane_of(op.attrs(), op.shape(0));
  TensorType out = op.type(0);
  if (quarter_turns(op.attrs()) % 2 == 1) {
    std::swap(out.shape[static_cast<size_t>(dims[0])], out.shape[static_cast<size_t>(dims[1])]);
  }
  return {out};
}

std::vector<ValueId> decompose_rot90(Builder& b, const Node& node) {
  ValueId x = node.operands[0];
  const Ints dims = plane_of(node.attrs, b.shape(x));
  const int64_t turns = quarter_turns(node.attrs);
  if (turns == 0) return {b.add("copy", {x})};
  if (turns == 2) return {b.add("flip", {x}, {{"dims", dims}})};
  Ints order(b.shape(x).size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[static_cast<size_t>(dims[0])], order[static_cast<size_t>(dims[1])]);
  const Ints flipped{turns == 1 ? dims[0] : dims[1]};
  return {b.add("flip", {b.permute(x, order)}, {{"dims", flipped}})};
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

std::vector<OpDef> make_rows() {
  return {
      {.name = "cat",
       .operands = "tensors*",
       .results = "out",
       .doc = "Tensors one after the other along a dimension.",
       .kind = Kind::gather,
       .attrs = {integer("dim", 0)},
       .aten = {{"cat", "tensors | dim"}},
       .traits = {.promotion = Promotion::common, .moves_elements = true},
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
       .traits = {.promotion = Promotion::common, .moves_elements = true},
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
       .traits = {.moves_elements = true},
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
       .traits = {.moves_elements = true},
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
       .traits = {.moves_elements = true},
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
       .traits = {.moves_elements = true},
       .infer = infer_repeat,
       .cost = cost_of_copy,
       .cpu = run_repeat,
       .samples = {Sample{{reals({2, 3})}, {{"repeats", Ints{2, 1, 3}}}},
                   Sample{{reals({4})}, {{"repeats", Ints{3}}}}}},
      {.name = "rot90",
       .operands = "x",
       .results = "out",
       .doc = "Quarter turns in the plane of two dimensions.",
       .kind = Kind::composite,
       .attrs = {integer("k", 1), ints("dims", {0, 1})},
       .aten = {{"rot90", "self | k, dims"}},
       .traits = {.moves_elements = true},
       .infer = infer_rot90,
       .cost = cost_of_copy,
       .decompose = decompose_rot90,
       .samples = {Sample{{reals({3, 4})}, {{"k", attr(1)}}},
                   Sample{{reals({3, 4, 5})}, {{"k", attr(2)}, {"dims", Ints{0, -1}}}},
                   Sample{{reals({3, 4, 5})}, {{"k", attr(-1)}, {"dims", Ints{2, 1}}}},
                   Sample{{reals({3, 4})}, {{"k", attr(4)}}}}},
      {.name = "tril",
       .operands = "x",
       .results = "out",
       .doc = "The lower triangle of matrices, zero elsewhere.",
       .kind = Kind::gather,
       .attrs = {integer("diagonal", 0)},
       .aten = {{"tril", "self | diagonal"}},
       .traits = {.moves_elements = true},
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
       .traits = {.moves_elements = true},
       .infer = infer_triangle,
       .cost = cost_of_copy,
       .cpu = run_triangle<false>,
       .samples = {Sample{{reals({4, 5})}}, Sample{{reals({2, 5, 4})}, {{"diagonal", attr(1)}}}}},
  };
}

}  // namespace

std::span<const OpDef> families::rearrange() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
