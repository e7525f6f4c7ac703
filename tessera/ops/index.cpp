// Reads and writes at indexed places, and embeddings. Single elements along a dimension are in
// scatter.cpp.
#include <algorithm>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/scratch.h"
#include "tessera/kernels/copy.h"
#include "tessera/kernels/gather.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/families.h"
#include "tessera/ops/index_parts.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace index_parts {

void check_index(const TensorType& index, std::string_view what) {
  check(index.dtype == DType::i32 || index.dtype == DType::i64, ErrorKind::type,
        "{}: an index must be int32 or int64, not {}", what, name_of(index.dtype));
}

void check_same_dtype(const TensorType& a, const TensorType& b, std::string_view what) {
  check(a.dtype == b.dtype, ErrorKind::type, "{}: the types {} and {} differ; cast one of them",
        what, name_of(a.dtype), name_of(b.dtype));
}

int64_t dim_of(const Attrs& attrs, size_t rank) {
  return wrap_dim(attrs.integer("dim"), static_cast<int64_t>(rank));
}

int64_t dim_of(const KernelCall& call, const TensorView& x) {
  return wrap_dim(call.attrs.integer("dim"), x.rank());
}

const TensorView& start_from_first(const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  if (call.inputs[0].data != out.data) kernels::copy(call.inputs[0], out, call.pool);
  return out;
}

Cost cost_of_gather(const OpView&, std::span<const TensorType> results) {
  return GatherCost{numel(results[0].shape), 2 * bytes(results[0])};
}

}  // namespace index_parts

namespace {

using namespace row_parts;
using namespace index_parts;

// ---- Whole slices: index_select, index_add, embedding

std::vector<TensorType> infer_index_select(const OpView& op) {
  constexpr std::string_view what = "index_select";
  check_index(op.type(1), what);
  check(op.shape(1).size() <= 1, "index_select: the index must be a vector, got shape {}",
        to_string(op.shape(1)));
  TensorType out = op.type(0);
  const auto dim = static_cast<size_t>(dim_of(op.attrs(), out.shape.size()));
  if (!out.shape.empty()) out.shape[dim] = numel(op.shape(1));
  return {out};
}

void run_index_select(const KernelCall& call) {
  const kernels::Dense x(call.inputs[0], call.pool);
  const auto places =
      kernels::slices_along(x.view().sizes, dim_of(call, x.view()), call.inputs[1], call.pool);
  kernels::take(x.view(), places, call.outputs[0], call.pool);
}

// The shape of the slices that an index picks.
Shape slices_shape(Shape shape, const Shape& index, const Attrs& attrs) {
  const auto dim = static_cast<size_t>(dim_of(attrs, shape.size()));
  if (!shape.empty()) shape[dim] = numel(index);
  return shape;
}

// Slices of a source written to self.
std::vector<TensorType> infer_write_slices(const OpView& op) {
  constexpr std::string_view what = "writing slices";
  check_index(op.type(1), what);
  check_same_dtype(op.type(0), op.type(2), what);
  const Shape wanted = slices_shape(op.shape(0), op.shape(1), op.attrs());
  check(op.shape(2) == wanted || (numel(op.shape(2)) == 1 && numel(wanted) == 1),
        "writing slices: the source has shape {}, wanted {}", to_string(op.shape(2)),
        to_string(wanted));
  return {op.type(0)};
}

std::vector<TensorType> infer_index_reduce(const OpView& op) {
  check_reduce(op.attrs());
  return infer_write_slices(op);
}

void run_index_add(const KernelCall& call) {
  const TensorView& out = start_from_first(call);
  const auto places =
      kernels::slices_along(out.sizes, dim_of(call, out), call.inputs[1], call.pool);
  kernels::put_add(call.inputs[2], places, call.attrs.number("alpha"), nullptr, out, call.pool);
}

void run_index_copy(const KernelCall& call) {
  const TensorView& out = start_from_first(call);
  const auto places =
      kernels::slices_along(out.sizes, dim_of(call, out), call.inputs[1], call.pool);
  kernels::put(call.inputs[2], places, out, call.pool);
}

std::vector<TensorType> infer_index_fill(const OpView& op) {
  check_index(op.type(1), "index_fill");
  dim_of(op.attrs(), op.shape(0).size());
  check(op.shape(1).size() <= 1, "index_fill: the index must be a vector, got shape {}",
        to_string(op.shape(1)));
  check(op.shape(2).empty(), "index_fill: wanted a single value, got shape {}",
        to_string(op.shape(2)));
  return {op.type(0)};
}

// Indices below 0 count from the end.
ValueId from_the_start(Builder& b, ValueId index, int64_t size) {
  const DType dtype = b.type(index).dtype;
  const ValueId wrapped = b.add("add", {index, b.scalar(static_cast<double>(size), dtype)});
  return b.add("where", {b.add("lt", {index, b.scalar(0, dtype)}), wrapped, index});
}

std::vector<ValueId> decompose_index_fill(Builder& b, const Node& node) {
  const ValueId x = node.operands[0];
  const Shape shape = b.shape(x);  // a copy: new nodes move the graph's own
  const Shape slices = slices_shape(shape, b.shape(node.operands[1]), node.attrs);
  const int64_t size =
      shape.empty() ? 1 : shape[static_cast<size_t>(dim_of(node.attrs, shape.size()))];
  const ValueId values = b.expand(b.cast(node.operands[2], b.type(x).dtype), slices);
  return {b.add("index_copy", {x, from_the_start(b, node.operands[1], size), values}, node.attrs)};
}

// Slices along a dimension, each combined with the places its index names: a scatter whose index is
// the same for the whole slice.
std::vector<ValueId> decompose_index_reduce(Builder& b, const Node& node) {
  const ValueId x = node.operands[0];
  const ValueId source = node.operands[2];
  const Shape shape = b.shape(source);  // a copy: new nodes move the graph's own
  Shape along(shape.size(), 1);
  if (!along.empty()) {
    along[static_cast<size_t>(dim_of(node.attrs, along.size()))] = numel(b.shape(node.operands[1]));
  }
  const ValueId index = b.expand(b.reshape(node.operands[1], along), shape);
  return {b.add("scatter_reduce", {x, index, source}, node.attrs)};
}

std::vector<TensorType> infer_embedding(const OpView& op) {
  check_index(op.type(1), "embedding");
  check(op.shape(0).size() == 2, "embedding: the weight must be a matrix, got shape {}",
        to_string(op.shape(0)));
  Shape shape = op.shape(1);
  shape.push_back(op.shape(0)[1]);
  return {{op.type(0).dtype, shape}};
}

void run_embedding(const KernelCall& call) {
  const kernels::Dense weight(call.inputs[0], call.pool);
  const auto places = kernels::slices_along(weight.view().sizes, 0, call.inputs[1], call.pool);
  kernels::take(weight.view(), places, call.outputs[0], call.pool);
}

std::vector<TensorType> infer_embedding_backward(const OpView& op) {
  check_index(op.type(1), "embedding_dense_backward");
  Shape wanted = op.shape(1);
  check(!op.shape(0).empty(), "embedding_dense_backward: the gradient is a scalar");
  wanted.push_back(op.shape(0).back());
  check(op.shape(0) == wanted, "embedding_dense_backward: the gradient has shape {}, wanted {}",
        to_string(op.shape(0)), to_string(wanted));
  return {{op.type(0).dtype, {op.attrs().integer("num_weights"), wanted.back()}}};
}

void run_embedding_backward(const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  kernels::fill(0, out, call.pool);
  auto places = kernels::slices_along(out.sizes, 0, call.inputs[1], call.pool);
  const int64_t width = std::max<int64_t>(1, out.sizes[1]);
  const int64_t padding = call.attrs.integer("padding_idx");
  ScratchVector<float> scales;
  if (call.attrs.flag("scale_grad_by_freq")) {
    ScratchVector<int64_t> counts(static_cast<size_t>(out.sizes[0]));
    for (const int64_t at : places.indexed) ++counts[static_cast<size_t>(at / width)];
    for (const int64_t at : places.indexed) {
      scales.push_back(1.0F / static_cast<float>(counts[static_cast<size_t>(at / width)]));
    }
  }
  if (padding >= 0) {
    for (int64_t& at : places.indexed) {
      if (at == padding * width) at = -1;
    }
  }
  kernels::put_add(call.inputs[0], places, 1, scales.empty() ? nullptr : scales.data(), out,
                   call.pool);
}

// ---- Flat indices: take, put

std::vector<TensorType> infer_take(const OpView& op) {
  check_index(op.type(1), "take");
  return {{op.type(0).dtype, op.shape(1)}};
}

std::vector<ValueId> decompose_take(Builder& b, const Node& node) {
  const ValueId flat = b.reshape(node.operands[0], {numel(b.shape(node.operands[0]))});
  return {b.add("index", {flat, node.operands[1]})};
}

std::vector<TensorType> infer_put(const OpView& op) {
  check_index(op.type(1), "put");
  check_same_dtype(op.type(0), op.type(2), "put");
  check(numel(op.shape(1)) == numel(op.shape(2)), "put: {} indices for {} elements",
        numel(op.shape(1)), numel(op.shape(2)));
  return {op.type(0)};
}

std::vector<ValueId> decompose_put(Builder& b, const Node& node) {
  const ValueId x = node.operands[0];
  const Shape shape = b.shape(x);
  const ValueId flat = b.reshape(x, {numel(shape)});
  const ValueId source = b.reshape(node.operands[2], b.shape(node.operands[1]));
  return {b.reshape(b.add("index_put", {flat, source, node.operands[1]}, node.attrs), shape)};
}

// ---- PyTorch's indexing with lists of tensors

struct IndexedShape {
  ScratchShape index;        // what the index tensors broadcast to
  ScratchVector<size_t> at;  // the dimensions they index
};

bool is_mask(const TensorType& type) {
  return type.dtype == DType::boolean || type.dtype == DType::u8;
}

IndexedShape indexed_shape(const OpView& op, size_t first, std::string_view what) {
  IndexedShape out;
  const size_t count = op.count() - first;
  check(count <= op.shape(0).size(), "{}: {} indices for a tensor of shape {}", what, count,
        to_string(op.shape(0)));
  for (size_t d = 0; d < count; ++d) {
    if (!op.has(first + d)) continue;
    const TensorType& index = op.type(first + d);
    check(!is_mask(index), ErrorKind::type,
          "{}: the size of what a boolean mask selects depends on the data, which a static program "
          "cannot have; use torch.where or a multiplication by the mask",
          what);
    check_index(index, what);
    out.index = scratch_copy(broadcast(out.index, index.shape));
    out.at.push_back(d);
  }
  check(!out.at.empty(), "{}: needs at least one index", what);
  return out;
}

// The shape of x[indices].
ScratchShape selection_shape(std::span<const int64_t> x, const IndexedShape& indexed) {
  const auto& at = indexed.at;
  const bool neighbours = at.back() - at.front() + 1 == at.size();
  ScratchShape shape;
  size_t insert_at = 0;
  for (size_t d = 0; d < x.size(); ++d) {
    if (neighbours && d == at.front()) insert_at = shape.size();
    if (std::find(at.begin(), at.end(), d) == at.end()) shape.push_back(x[d]);
  }
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(insert_at), indexed.index.begin(),
               indexed.index.end());
  return shape;
}

std::vector<TensorType> infer_index(const OpView& op) {
  const ScratchShape shape = selection_shape(op.shape(0), indexed_shape(op, 1, "index"));
  return {{op.type(0).dtype, {shape.begin(), shape.end()}}};
}

void run_index(const KernelCall& call) {
  if (call.outputs[0].numel() == 0) return;
  const kernels::Dense x(call.inputs[0], call.pool);
  const auto places = kernels::places_of_indices(x.view().sizes, call.inputs.subspan(1), call.pool);
  kernels::take(x.view(), places, call.outputs[0], call.pool);
}

// A single mask with a single value is no indexing at all: every size is known.
std::optional<size_t> lone_mask(const OpView& op) {
  std::optional<size_t> mask;
  for (size_t i = 2; i < op.count(); ++i) {
    if (!op.has(i)) continue;
    if (mask || !is_mask(op.type(i))) return std::nullopt;
    mask = i;
  }
  return numel(op.shape(1)) == 1 ? mask : std::nullopt;
}

std::vector<TensorType> infer_index_put(const OpView& op) {
  constexpr std::string_view what = "index_put";
  check_same_dtype(op.type(0), op.type(1), what);
  if (const auto mask = lone_mask(op)) {
    const size_t first = *mask - 2;
    const Shape& shape = op.shape(*mask);
    check(first + shape.size() <= op.shape(0).size() &&
              std::equal(shape.begin(), shape.end(),
                         op.shape(0).begin() + static_cast<std::ptrdiff_t>(first)),
          "index_put: a mask of shape {} does not fit a tensor of shape {}", to_string(shape),
          to_string(op.shape(0)));
    return {op.type(0)};
  }
  const ScratchShape selection = selection_shape(op.shape(0), indexed_shape(op, 2, what));
  check(scratch_copy(broadcast(op.shape(1), selection)) == selection,
        "index_put: values of shape {} do not broadcast to the {} that are indexed",
        to_string(op.shape(1)), to_string(selection));
  return {op.type(0)};
}

std::vector<ValueId> decompose_index_put(Builder& b, const Node& node) {
  std::vector<std::optional<TensorType>> types;
  for (const ValueId id : node.operands) {
    types.push_back(id.valid() ? std::optional(b.type(id)) : std::nullopt);
  }
  const auto mask = lone_mask(OpView(types, node.attrs));
  if (!mask) return {};
  const ValueId x = node.operands[0];
  const Shape& mask_shape = types[*mask]->shape;
  Shape shape(b.shape(x).size(), 1);
  std::copy(mask_shape.begin(), mask_shape.end(),
            shape.begin() + static_cast<std::ptrdiff_t>(*mask - 2));
  const ValueId condition = b.cast(b.reshape(node.operands[*mask], shape), DType::boolean);
  ValueId value = b.reshape(node.operands[1], {});
  if (node.attrs.flag("accumulate")) value = b.add("add", {x, value});
  return {b.add("where", {condition, value, x})};
}

void run_index_put(const KernelCall& call) {
  const TensorView& out = start_from_first(call);
  const auto indices = call.inputs.subspan(2);
  const auto places = kernels::places_of_indices(out.sizes, indices, call.pool);
  if (places.count() == 0) return;
  // The values broadcast to what is indexed, whose shape is known from the index again.
  IndexedShape indexed;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d].present) continue;
    indexed.index = scratch_broadcast(indexed.index, indices[d].sizes);
    indexed.at.push_back(d);
  }
  const ScratchShape shape = selection_shape(out.sizes, indexed);
  TensorView values = call.inputs[1];
  const ScratchShape strides = scratch_broadcast_strides(values.sizes, values.strides, shape);
  values.sizes = shape;
  values.strides = strides;
  if (call.attrs.flag("accumulate")) {
    kernels::put_add(values, places, 1, nullptr, out, call.pool);
  } else {
    kernels::put(values, places, out, call.pool);
  }
}

// ---- one_hot

std::vector<TensorType> infer_one_hot(const OpView& op) {
  check_index(op.type(0), "one_hot");
  const int64_t classes = op.attrs().integer("num_classes");
  check(classes > 0,
        "OneHot num classes must be specified and must be constant. one_hot got {}, and a static "
        "program cannot take it from the data",
        classes);
  Shape shape = op.shape(0);
  shape.push_back(classes);
  return {{DType::i64, shape}};
}

void run_one_hot(const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  kernels::fill(0, out, call.pool);
  // As a scatter of ones along a last dimension of size 1.
  ScratchShape sizes = scratch_copy(call.inputs[0].sizes);
  ScratchShape strides = scratch_copy(call.inputs[0].strides);
  sizes.push_back(1);
  strides.push_back(1);
  kernels::Scatter scatter;
  scatter.index = call.inputs[0];
  scatter.index.sizes = sizes;
  scatter.index.strides = strides;
  scatter.source.present = false;
  scatter.dim = out.rank() - 1;
  scatter.value = 1;
  if (out.numel() > 0) kernels::scatter(scatter, out, call.pool);
}

std::vector<OpDef> slice_rows() {
  const Traits over_first = {.in_place = {{0, 0}}};
  const AttrSpec dim = integer("dim");
  return {
      {.name = "index_select",
       .operands = "self, index",
       .results = "out",
       .doc = "Slices along a dimension, picked by a vector of indices.",
       .kind = Kind::gather,
       .attrs = {dim},
       .aten = {{"index_select", "self, index | dim"}},
       .traits = {.moves_elements = true},
       .infer = infer_index_select,
       .cost = cost_of_gather,
       .cpu = run_index_select,
       .samples = {Sample{{reals({4, 5, 3}), integers({7}, {0, 5})}, {{"dim", attr(1)}}},
                   Sample{{integers({6}, {0, 99}), integers({4}, {0, 6})}, {{"dim", attr(-1)}}}}},
      {.name = "index_add",
       .operands = "self, index, source",
       .results = "out",
       .doc = "self with slices of source, times alpha, added at indices along a dimension.",
       .kind = Kind::gather,
       .attrs = {dim, number("alpha", 1)},
       .aten = {{"index_add", "self, index, source | dim, alpha"}},
       .traits = over_first,
       .infer = infer_write_slices,
       .cost = cost_of_scatter<2>,
       .cpu = run_index_add,
       .samples = {Sample{{reals({4, 5, 3}), integers({7}, {0, 5}), reals({4, 7, 3})},
                          {{"dim", attr(1)}, {"alpha", 0.5}}},
                   Sample{{reals({6}), integers({9}, {0, 6}), reals({9})}, {{"dim", attr(0)}}}}},
      {.name = "index_copy",
       .operands = "self, index, source",
       .results = "out",
       .doc = "self with slices of source written at indices along a dimension.",
       .kind = Kind::gather,
       .attrs = {dim},
       .aten = {{"index_copy", "self, index, source | dim"}},
       .traits = {.in_place = {{0, 0}}, .moves_elements = true},
       .infer = infer_write_slices,
       .cost = cost_of_scatter<2>,
       .cpu = run_index_copy,
       .samples = {Sample{{reals({4, 5, 3}), integers({1}, {0, 5}), reals({4, 1, 3})},
                          {{"dim", attr(1)}}},
                   Sample{{integers({6}), integers({1}, {0, 6}), integers({1})},
                          {{"dim", attr(0)}}}}},
      {.name = "index_fill",
       .operands = "self, index, value",
       .results = "out",
       .doc = "self with one value in the slices at indices along a dimension.",
       .kind = Kind::composite,
       .attrs = {dim},
       .aten = {{"index_fill.int_Scalar", "self, index, value | dim"},
                {"index_fill.int_Tensor", "self, index, value | dim"}},
       .infer = infer_index_fill,
       .cost = cost_of_gather,
       .decompose = decompose_index_fill,
       .samples = {Sample{{reals({4, 5, 3}), integers({3}, {0, 5}), reals({})}, {{"dim", attr(1)}}},
                   Sample{{integers({6}), integers({2}, {0, 6}), integers({})},
                          {{"dim", attr(-1)}}}}},
      {.name = "index_reduce",
       .operands = "self, index, source",
       .results = "out",
       .doc = "self with slices of source combined into it at indices along a dimension.",
       .kind = Kind::composite,
       .attrs = reduce_attrs(),
       .aten = {{"index_reduce", "self, index, source | dim, reduce, include_self"}},
       .infer = infer_index_reduce,
       .cost = cost_of_scatter<2>,
       .decompose = decompose_index_reduce,
       .samples = reduce_samples(true)},
      {.name = "embedding",
       .operands = "weight, indices",
       .results = "out",
       .doc = "Rows of a matrix, picked by indices.",
       .kind = Kind::gather,
       .aten = {{"embedding", "weight, indices"}},
       .traits = {.moves_elements = true},
       .infer = infer_embedding,
       .cost = cost_of_gather,
       .cpu = run_embedding,
       .samples = {Sample{{reals({7, 4}), integers({2, 5}, {0, 7})}}}},
      {.name = "embedding_dense_backward",
       .operands = "grad_output, indices",
       .results = "grad_weight",
       .doc = "Gradients of rows added up by the index they were picked with.",
       .kind = Kind::gather,
       .attrs = {integer("num_weights"), integer("padding_idx", -1),
                 flag("scale_grad_by_freq", false)},
       .aten = {{"embedding_dense_backward",
                 "grad_output, indices | num_weights, padding_idx, scale_grad_by_freq"}},
       .infer = infer_embedding_backward,
       .cost = cost_of_scatter<0>,
       .cpu = run_embedding_backward,
       .samples = {Sample{{reals({2, 9, 4}), integers({2, 9}, {0, 7})}, {{"num_weights", attr(7)}}},
                   Sample{{reals({15, 4}), integers({15}, {0, 5})},
                          {{"num_weights", attr(5)},
                           {"padding_idx", attr(2)},
                           {"scale_grad_by_freq", true}}}}},
  };
}

std::vector<OpDef> element_rows() {
  const Traits over_first = {.in_place = {{0, 0}}};
  return {
      {.name = "take",
       .operands = "self, index",
       .results = "out",
       .doc = "Elements by their place in row-major order.",
       .kind = Kind::composite,
       .aten = {{"take", "self, index"}},
       .traits = {.moves_elements = true},
       .infer = infer_take,
       .cost = cost_of_gather,
       .decompose = decompose_take,
       .samples = {Sample{{reals({4, 5}), integers({3, 6}, {-20, 20})}}}},
      {.name = "put",
       .operands = "self, index, source",
       .results = "out",
       .doc = "self with elements written, or added, by their place in row-major order.",
       .kind = Kind::composite,
       .attrs = {flag("accumulate", false)},
       .aten = {{"put", "self, index, source | accumulate"}},
       .infer = infer_put,
       .cost = cost_of_scatter<1>,
       .decompose = decompose_put,
       .samples = {Sample{{reals({4, 5}), integers({2, 3}, {-20, 20}), reals({6})},
                          {{"accumulate", true}}},
                   Sample{{reals({4, 5}), integers({1}, {0, 20}), reals({1})}}}},
      {.name = "index",
       .operands = "self, indices*",
       .results = "out",
       .doc = "PyTorch's indexing with integer tensors; a dimension without one is taken whole.",
       .kind = Kind::gather,
       .aten = {{"index.Tensor", "self, indices"}},
       .traits = {.moves_elements = true},
       .infer = infer_index,
       .cost = cost_of_gather,
       .cpu = run_index,
       .samples =
           {Sample{{reals({4, 5, 3}), integers({6}, {-4, 4})}},
            Sample{{reals({4, 5, 3}), left_out(), integers({2, 1}, {0, 5}), integers({3}, {0, 3})}},
            Sample{{reals({4, 5, 3}), integers({6}, {0, 4}), left_out(), integers({1}, {-3, 3})}}}},
      {.name = "index_put",
       .operands = "self, values, indices*",
       .results = "out",
       .doc = "self with values written, or added, where PyTorch's indexing points.",
       .kind = Kind::gather,
       .attrs = {flag("accumulate", false)},
       .aten = {{"index_put", "self, values, indices | accumulate"},
                {"_index_put_impl_", "self, values, indices | accumulate"}},
       .traits = over_first,
       .infer = infer_index_put,
       .cost = cost_of_scatter<1>,
       .cpu = run_index_put,
       .decompose = decompose_index_put,
       .samples = {Sample{{reals({4, 5, 3}), reals({6, 5, 3}), integers({6}, {-4, 4})},
                          {{"accumulate", true}}},
                   Sample{{reals({4, 5, 3}), reals({3}), left_out(), integers({1}, {0, 5})}}}},
      {.name = "one_hot",
       .operands = "index",
       .results = "out",
       .doc = "A new last dimension with 1 at the index and 0 elsewhere.",
       .kind = Kind::gather,
       .attrs = {integer("num_classes")},
       .infer = infer_one_hot,
       .cost = cost_of_gather,
       .cpu = run_one_hot,
       .samples = {Sample{{integers({3, 4}, {0, 6})}, {{"num_classes", attr(6)}}}}},
  };
}

}  // namespace

std::span<const OpDef> families::index() {
  static const std::vector<OpDef> rows = [] {
    std::vector<OpDef> all = slice_rows();
    for (auto more : {gather_and_scatter_rows(), element_rows()}) {
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }();
  return rows;
}

}  // namespace tessera
