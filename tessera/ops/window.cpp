// Windows of a tensor: slices, single indices and diagonals. Their gradients lie at their place in
// zeros; a window can be written, copied out or summed.
#include <algorithm>
#include <limits>

#include "tessera/base/divided_up.h"
#include "tessera/base/error.h"
#include "tessera/base/geometry.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/families.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

constexpr int64_t to_the_end = std::numeric_limits<int64_t>::max();

Cost cost_of_copy(const OpView&, std::span<const TensorType> results) {
  return CopyCost{2 * bytes(results[0])};
}

// ---- Where a window lies in a row-major tensor of those sizes

using WindowRule = Geometry (*)(const Shape& sizes, const Attrs& attrs);

int64_t rank_of(const Shape& sizes) { return static_cast<int64_t>(sizes.size()); }

Geometry slice_window(const Shape& sizes, int64_t dim, int64_t start, int64_t end, int64_t step) {
  check(step > 0, "a slice's step must be positive, got {}", step);
  check(!sizes.empty(), "a scalar has no dimension to slice");
  const auto d = static_cast<size_t>(wrap_dim(dim, rank_of(sizes)));
  const int64_t size = sizes[d];
  const auto wrapped = [&](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size);
  };
  step = std::min(step, std::max<int64_t>(size, 1));  // a longer one picks the same
  start = wrapped(start);
  end = std::max(start, wrapped(end));
  Geometry window = dense(sizes);
  window.shape[d] = divided_up(end - start, step);
  window.offset = start * window.strides[d];
  window.strides[d] *= step;
  return window;
}

Geometry slice_of(const Shape& sizes, const Attrs& attrs) {
  const int64_t start = attrs.has("start") ? attrs.integer("start") : 0;
  const int64_t end = attrs.has("end") ? attrs.integer("end") : to_the_end;
  return slice_window(sizes, attrs.integer("dim"), start, end, attrs.integer("step"));
}

Geometry narrow_of(const Shape& sizes, const Attrs& attrs) {
  const int64_t start = attrs.integer("start");
  const int64_t length = attrs.integer("length");
  const auto d = static_cast<size_t>(wrap_dim(attrs.integer("dim"), rank_of(sizes)));
  check(d < sizes.size(), "a scalar has no dimension to narrow");
  const int64_t first = start < 0 ? start + sizes[d] : start;
  check(first >= 0 && length >= 0 && first + length <= sizes[d],
        "narrow: {} elements from {} on do not fit dimension {} of shape {}", length, start, d,
        to_string(sizes));
  return slice_window(sizes, attrs.integer("dim"), first, first + length, 1);
}

Geometry select_of(const Shape& sizes, const Attrs& attrs) {
  const int64_t dim = wrap_dim(attrs.integer("dim"), rank_of(sizes));
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

// The diagonal comes last.
Geometry diagonal_window(const Shape& sizes, int64_t offset, int64_t dim1, int64_t dim2) {
  dim1 = wrap_dim(dim1, rank_of(sizes));
  dim2 = wrap_dim(dim2, rank_of(sizes));
  check(dim1 != dim2, "a diagonal needs two different dimensions, got {} twice", dim1);
  const auto rows = static_cast<size_t>(dim1);
  const auto cols = static_cast<size_t>(dim2);
  const Geometry whole = dense(sizes);
  const int64_t down = std::max<int64_t>(-offset, 0);
  const int64_t right = std::max<int64_t>(offset, 0);
  const int64_t length = std::max<int64_t>(std::min(sizes[rows] - down, sizes[cols] - right), 0);
  Geometry window;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (d == rows || d == cols) continue;
    window.shape.push_back(sizes[d]);
    window.strides.push_back(whole.strides[d]);
  }
  window.shape.push_back(length);
  window.strides.push_back(whole.strides[rows] + whole.strides[cols]);
  if (length > 0) window.offset = down * whole.strides[rows] + right * whole.strides[cols];
  return window;
}

Geometry diagonal_of(const Shape& sizes, const Attrs& attrs) {
  return diagonal_window(sizes, attrs.integer("offset"), attrs.integer("dim1"),
                         attrs.integer("dim2"));
}

ValueId view_of(Builder& b, ValueId x, const Geometry& window) {
  return b.view(x, window.shape, window.strides, window.offset);
}

ValueId write(Builder& b, ValueId base, ValueId source, const Geometry& window) {
  return b.add("write_view", {base, source},
               {{"strides", window.strides}, {"offset", window.offset}});
}

ValueId zeros(Builder& b, const TensorType& type) {
  return b.add("fill", {}, {{"shape", type.shape}, {"value", 0.0}, {"dtype", type.dtype}});
}

// ---- Gradients of windows, and windows written into a tensor

void check_fits(const Shape& source, const Geometry& window) {
  check(window.shape == source, "a tensor of shape {} does not fit a window of shape {}",
        to_string(source), to_string(window.shape));
}

template <WindowRule window_of>
std::vector<TensorType> infer_backward(const OpView& op) {
  const Shape& sizes = op.attrs().integers("input_sizes");
  check_sizes(sizes, op.type(0).dtype, "the gradient of a window");
  check_fits(op.shape(0), window_of(sizes, op.attrs()));
  return {{op.type(0).dtype, sizes}};
}

template <WindowRule window_of>
std::vector<ValueId> decompose_backward(Builder& b, const Node& node) {
  const ValueId grad = node.operands[0];
  const Shape& sizes = node.attrs.integers("input_sizes");
  return {write(b, zeros(b, {b.type(grad).dtype, sizes}), grad, window_of(sizes, node.attrs))};
}

template <WindowRule window_of>
std::vector<TensorType> infer_write(const OpView& op) {
  check_fits(op.shape(1), window_of(op.shape(0), op.attrs()));
  check(op.type(0).dtype == op.type(1).dtype, ErrorKind::type, "cannot write {} into {}",
        name_of(op.type(1).dtype), name_of(op.type(0).dtype));
  return {op.type(0)};
}

template <WindowRule window_of>
std::vector<ValueId> decompose_write(Builder& b, const Node& node) {
  const Shape sizes = b.shape(node.operands[0]);
  return {write(b, node.operands[0], node.operands[1], window_of(sizes, node.attrs))};
}

std::vector<TensorType> infer_narrow(const OpView& op) {
  return {{op.type(0).dtype, narrow_of(op.shape(0), op.attrs()).shape}};
}

std::vector<ValueId> decompose_narrow(Builder& b, const Node& node) {
  const Shape sizes = b.shape(node.operands[0]);
  return {b.add("copy", {view_of(b, node.operands[0], narrow_of(sizes, node.attrs))})};
}

// ---- Diagonals

// The shape whose diagonal holds a tensor of that shape.
Shape embedded_shape(const Shape& shape, const Attrs& attrs) {
  check(!shape.empty(), "diag_embed: a scalar has no diagonal");
  const int64_t rank = rank_of(shape) + 1;
  const int64_t dim1 = wrap_dim(attrs.integer("dim1"), rank);
  const int64_t dim2 = wrap_dim(attrs.integer("dim2"), rank);
  check(dim1 != dim2, "diag_embed: needs two different dimensions, got {} twice", dim1);
  const int64_t side = shape.back() + std::abs(attrs.integer("offset"));
  Shape out(shape.begin(), shape.end() - 1);
  out.insert(out.begin() + std::min(dim1, dim2), side);
  out.insert(out.begin() + std::max(dim1, dim2), side);
  return out;
}

std::vector<TensorType> infer_embed(const OpView& op) {
  return {{op.type(0).dtype, embedded_shape(op.shape(0), op.attrs())}};
}

std::vector<ValueId> decompose_embed(Builder& b, const Node& node) {
  const ValueId x = node.operands[0];
  const TensorType type{b.type(x).dtype, embedded_shape(b.shape(x), node.attrs)};
  return {write(b, zeros(b, type), x, diagonal_of(type.shape, node.attrs))};
}

std::vector<TensorType> infer_diag(const OpView& op) {
  const Shape& shape = op.shape(0);
  const int64_t diagonal = op.attrs().integer("diagonal");
  check(shape.size() == 1 || shape.size() == 2, "diag: wanted a vector or a matrix, got shape {}",
        to_string(shape));
  if (shape.size() == 2) {
    return {{op.type(0).dtype, diagonal_window(shape, diagonal, 0, 1).shape}};
  }
  const int64_t side = shape[0] + std::abs(diagonal);
  return {{op.type(0).dtype, {side, side}}};
}

std::vector<ValueId> decompose_diag(Builder& b, const Node& node) {
  const ValueId x = node.operands[0];
  const int64_t diagonal = node.attrs.integer("diagonal");
  if (b.shape(x).size() == 1) return {b.add("diag_embed", {x}, {{"offset", diagonal}})};
  const Geometry window = diagonal_window(b.shape(x), diagonal, 0, 1);
  return {b.add("copy", {view_of(b, x, window)})};
}

std::vector<TensorType> infer_trace(const OpView& op) {
  check(op.shape(0).size() == 2, "trace: wanted a matrix, got shape {}", to_string(op.shape(0)));
  const DType own = op.type(0).dtype;
  return {{is_floating(own) ? own : DType::i64, {}}};
}

std::vector<ValueId> decompose_trace(Builder& b, const Node& node) {
  const ValueId x = node.operands[0];
  return {b.add("sum", {view_of(b, x, diagonal_window(b.shape(x), 0, 0, 1))})};
}

// ---- Rows

struct WindowRow {
  std::string name, operands, results, doc;
  AttrSchema attrs;
  std::vector<AtenSpelling> aten;
  decltype(OpDef::infer) infer;
  decltype(OpDef::decompose) decompose;
  std::vector<Sample> samples;
};

OpDef composite(WindowRow row) {
  return {.name = std::move(row.name),
          .operands = std::move(row.operands),
          .results = std::move(row.results),
          .doc = std::move(row.doc),
          .kind = Kind::composite,
          .attrs = std::move(row.attrs),
          .aten = std::move(row.aten),
          .infer = row.infer,
          .cost = cost_of_copy,
          .decompose = row.decompose,
          .samples = std::move(row.samples)};
}

OpDef window_backward(std::string name, std::string doc, AttrSchema attrs, std::string arguments,
                      decltype(OpDef::infer) infer, decltype(OpDef::decompose) decompose,
                      std::vector<Sample> samples) {
  attrs.push_back(large(ints("input_sizes")));
  const std::string spelling = "grad_output | input_sizes, " + std::move(arguments);
  return composite({name,
                    "grad_output",
                    "grad_input",
                    std::move(doc),
                    std::move(attrs),
                    {{name, spelling}},
                    infer,
                    decompose,
                    std::move(samples)});
}

OpDef window_scatter(std::string name, std::string doc, AttrSchema attrs, std::string arguments,
                     decltype(OpDef::infer) infer, decltype(OpDef::decompose) decompose,
                     std::vector<Sample> samples) {
  const std::string spelling = "self, src | " + std::move(arguments);
  return composite({name,
                    "self, src",
                    "out",
                    std::move(doc),
                    std::move(attrs),
                    {{name, spelling}},
                    infer,
                    decompose,
                    std::move(samples)});
}

std::vector<OpDef> make_rows() {
  const AttrSchema slice = {integer("dim", 0), maybe(large(integer("start"))),
                            maybe(large(integer("end"))), integer("step", 1)};
  const AttrSchema select = {integer("dim"), integer("index")};
  const AttrSchema diagonal = {integer("offset", 0), integer("dim1", 0), integer("dim2", 1)};
  const Attrs stepped = {{"dim", attr(1)}, {"start", attr(1)}, {"end", attr(5)}, {"step", attr(2)}};
  const Attrs tail = {
      {"dim", attr(-2)}, {"start", attr(-2)}, {"end", to_the_end}, {"step", attr(1)}};
  const Attrs picked = {{"dim", attr(1)}, {"index", attr(-1)}};
  const Attrs lower = {{"offset", attr(-1)}, {"dim1", attr(0)}, {"dim2", attr(2)}};
  const Attrs main = {{"offset", attr(0)}, {"dim1", attr(0)}, {"dim2", attr(1)}};
  const auto sized = [](Attrs attrs, Ints sizes) {
    attrs.set("input_sizes", std::move(sizes));
    return attrs;
  };
  return {
      window_backward("slice_backward", "A slice's gradient at its place in zeros.", slice,
                      "dim, start, end, step", infer_backward<slice_of>,
                      decompose_backward<slice_of>,
                      {Sample{{reals({4, 2})}, sized(stepped, {4, 6})},
                       Sample{{reals({2, 6})}, sized(tail, {4, 6})}}),
      window_backward("select_backward",
                      "The gradient of one index of a dimension at its place in zeros.", select,
                      "dim, index", infer_backward<select_of>, decompose_backward<select_of>,
                      {Sample{{reals({4, 5})}, sized(picked, {4, 3, 5})}}),
      window_backward("diagonal_backward", "A diagonal's gradient at its place in zeros.", diagonal,
                      "offset, dim1, dim2", infer_backward<diagonal_of>,
                      decompose_backward<diagonal_of>,
                      {Sample{{reals({3, 4})}, sized(lower, {5, 3, 4})},
                       Sample{{reals({4})}, sized(main, {4, 6})}}),
      window_scatter("slice_scatter", "self with a slice written into it.", slice,
                     "dim, start, end, step", infer_write<slice_of>, decompose_write<slice_of>,
                     {Sample{{reals({4, 6}), reals({4, 2})}, stepped},
                      Sample{{reals({4, 6}), reals({2, 6})}, tail}}),
      window_scatter("select_scatter", "self with one index of a dimension written.", select,
                     "dim, index", infer_write<select_of>, decompose_write<select_of>,
                     {Sample{{reals({4, 3, 5}), reals({4, 5})}, picked}}),
      window_scatter("diagonal_scatter", "self with a diagonal written into it.", diagonal,
                     "offset, dim1, dim2", infer_write<diagonal_of>, decompose_write<diagonal_of>,
                     {Sample{{reals({5, 3, 4}), reals({3, 4})}, lower}}),
      composite(
          {"narrow_copy",
           "self",
           "out",
           "A range of a dimension in fresh memory.",
           {integer("dim"), integer("start"), integer("length")},
           {{"narrow_copy", "self | dim, start, length"}},
           infer_narrow,
           decompose_narrow,
           {Sample{{reals({4, 6})}, {{"dim", attr(1)}, {"start", attr(2)}, {"length", attr(3)}}}}}),
      composite({"diag_embed",
                 "self",
                 "out",
                 "Vectors as the diagonals of matrices of zeros.",
                 {integer("offset", 0), integer("dim1", -2), integer("dim2", -1)},
                 {{"diag_embed", "self | offset, dim1, dim2"}},
                 infer_embed,
                 decompose_embed,
                 {Sample{{reals({2, 3})}, {{"offset", attr(1)}}},
                  Sample{{reals({2, 3})},
                         {{"offset", attr(-2)}, {"dim1", attr(2)}, {"dim2", attr(0)}}}}}),
      composite({"diag",
                 "self",
                 "out",
                 "A vector as a diagonal, or the diagonal of a matrix.",
                 {integer("diagonal", 0)},
                 {{"diag", "self | diagonal"}},
                 infer_diag,
                 decompose_diag,
                 {Sample{{reals({4})}, {{"diagonal", attr(1)}}},
                  Sample{{reals({4, 5})}, {{"diagonal", attr(-1)}}}, Sample{{reals({3, 3})}}}}),
      composite({"trace",
                 "self",
                 "out",
                 "The sum of a matrix's diagonal.",
                 {},
                 {{"trace", "self"}},
                 infer_trace,
                 decompose_trace,
                 {Sample{{reals({4, 6})}}, Sample{{integers({3, 3}, {-9, 9})}}}}),
  };
}

}  // namespace

std::span<const OpDef> families::window() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
