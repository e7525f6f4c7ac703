// Sorting, order statistics and searching: largest elements, medians, k-th values, modes, places in
// sorted sequences.
#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/kernels/copy.h"
#include "tessera/kernels/sort.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/families.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

int64_t dim_of(const Attrs& attrs, size_t rank) {
  return wrap_dim(attrs.integer("dim"), static_cast<int64_t>(rank));
}

int64_t dim_of(const KernelCall& call) { return dim_of(call.attrs, call.inputs[0].sizes.size()); }

Cost cost_of_sort(const OpView& op, std::span<const TensorType>) {
  return ElementwiseCost{numel(op.shape(0)), 32};
}

// ---- sort, topk

std::vector<TensorType> infer_sort(const OpView& op) {
  dim_of(op.attrs(), op.shape(0).size());
  return {op.type(0), {DType::i64, op.shape(0)}};
}

void run_sort(const KernelCall& call) {
  kernels::sort(call.inputs[0], dim_of(call), call.attrs.flag("descending"), call.outputs[0],
                call.outputs[1], call.pool);
}

std::vector<TensorType> infer_topk(const OpView& op) {
  TensorType out = op.type(0);
  const int64_t k = op.attrs().integer("k");
  const auto dim = static_cast<size_t>(dim_of(op.attrs(), out.shape.size()));
  const int64_t size = out.shape.empty() ? 1 : out.shape[dim];
  check(k >= 0 && k <= size, "topk: k is {}, but there are {} elements", k, size);
  if (!out.shape.empty()) out.shape[dim] = k;
  return {out, {DType::i64, out.shape}};
}

void run_topk(const KernelCall& call) {
  kernels::sort(call.inputs[0], dim_of(call), call.attrs.flag("largest"), call.outputs[0],
                call.outputs[1], call.pool);
}

// ---- unique

std::vector<TensorType> infer_unique(const OpView& op) {
  const int64_t count = op.attrs().integer("count");
  const int64_t elements = numel(op.shape(0));
  check(count >= std::min<int64_t>(elements, 1) && count <= elements,
        "unique: {} different values cannot be found among {} elements", count, elements);
  return {{op.type(0).dtype, {count}}, {DType::i64, op.shape(0)}, {DType::i64, {count}}};
}

void run_unique(const KernelCall& call) {
  kernels::find_unique(call.inputs[0], call.outputs[0], call.outputs[1], call.outputs[2],
                       call.pool);
}

// ---- One element of each line

Shape without_dim(Shape shape, int64_t dim, bool keep) {
  if (shape.empty()) return shape;
  const auto d = static_cast<size_t>(dim);
  shape[d] = 1;
  if (!keep) shape.erase(shape.begin() + dim);
  return shape;
}

std::vector<TensorType> infer_selection(const OpView& op) {
  const Shape& shape = op.shape(0);
  const int64_t dim = dim_of(op.attrs(), shape.size());
  const int64_t size = shape.empty() ? 1 : shape[static_cast<size_t>(dim)];
  check(size > 0, ErrorKind::value, "there is no element to pick along dimension {} of shape {}",
        dim, to_string(shape));
  if (op.attrs().has("k")) {
    const int64_t k = op.attrs().integer("k");
    check(k >= 1 && k <= size, ErrorKind::value,
          "kthvalue: k is {}, but there are {} elements; k counts from 1", k, size);
  }
  const Shape out = without_dim(shape, dim, op.attrs().flag("keepdim"));
  return {{op.type(0).dtype, out}, {DType::i64, out}};
}

// A NaN anywhere is the median: NaN come last in the order, the first of them follows the numbers.
int64_t median_rank(int64_t size, int64_t nans, int64_t) {
  return nans > 0 ? size - nans : (size - 1) / 2;
}
int64_t median_of_numbers_rank(int64_t size, int64_t nans, int64_t) {
  return std::max<int64_t>(size - nans - 1, 0) / 2;
}
int64_t kth_rank(int64_t, int64_t, int64_t k) { return k - 1; }

template <kernels::RankRule rank>
void run_selection(const KernelCall& call) {
  const int64_t dim = dim_of(call);
  const int64_t k = call.attrs.has("k") ? call.attrs.integer("k") : 0;
  kernels::select_ranked(call.inputs[0], dim, rank, k, call.outputs[0], call.outputs[1], call.pool);
}

void run_mode(const KernelCall& call) {
  const int64_t dim = dim_of(call);
  kernels::most_frequent(call.inputs[0], dim, call.outputs[0], call.outputs[1], call.pool);
}

std::vector<TensorType> infer_whole(const OpView& op) {
  check(numel(op.shape(0)) > 0, ErrorKind::value, "there is no median of the empty shape {}",
        to_string(op.shape(0)));
  return {{op.type(0).dtype, {}}};
}

template <bool skip_nan>
std::vector<ValueId> decompose_whole(Builder& b, const Node& node) {
  const ValueId flat = b.reshape(node.operands[0], {numel(b.shape(node.operands[0]))});
  return {b.add_all(skip_nan ? "nanmedian" : "median", {flat}, {{"dim", attr(0)}})[0]};
}

// ---- Sorted sequences

std::vector<TensorType> infer_search(const OpView& op) {
  const Shape& sorted = op.shape(0);
  const Shape& values = op.shape(1);
  check(!sorted.empty(), "searchsorted: the sorted sequence must have a dimension");
  const bool lines_match = sorted.size() == values.size() &&
                           std::equal(sorted.begin(), sorted.end() - 1, values.begin());
  check(sorted.size() == 1 || lines_match,
        "searchsorted: sequences of shape {} and values of shape {} differ before the last "
        "dimension",
        to_string(sorted), to_string(values));
  OperandChecks(op, "searchsorted").index(2, "the sorter", sorted);
  if (op.attrs().has("side")) {
    const std::string& side = op.attrs().text("side");
    check(side == "left" || side == "right", ErrorKind::value,
          "searchsorted: side must be 'left' or 'right', not '{}'", side);
  }
  return {{op.attrs().flag("out_int32") ? DType::i32 : DType::i64, values}};
}

void run_search(const KernelCall& call) {
  kernels::Insertion insertion;
  insertion.sorted = call.inputs[0];
  insertion.values = call.inputs[1];
  insertion.order.present = call.has_input(2);
  if (insertion.order.present) insertion.order = call.inputs[2];
  insertion.after_equal = call.attrs.flag("right");
  if (call.attrs.has("side")) insertion.after_equal |= call.attrs.text("side") == "right";
  kernels::find_places(insertion, call.outputs[0], call.pool);
}

std::vector<TensorType> infer_member(const OpView& op) { return {{DType::boolean, op.shape(0)}}; }

void run_member(const KernelCall& call) {
  kernels::is_member(call.inputs[0], call.inputs[1], call.attrs.flag("invert"), call.outputs[0],
                     call.pool);
}

// ---- Rows

std::vector<Sample> line_samples(const Attrs& attrs) {
  std::vector<Sample> samples;
  const auto add = [&](SampleOperand operand, int64_t dim, bool keep) {
    Sample one{{std::move(operand)}, attrs};
    one.attrs.set("dim", dim);
    one.attrs.set("keepdim", keep);
    samples.push_back(std::move(one));
  };
  add(reals({4, 9}), -1, false);
  add(reals({5, 4, 3}), 1, true);
  add(reals({3000, 4}), 0, false);
  add(reals({6}), 0, false);
  return samples;
}

OpDef selection(std::string name, std::string overload, std::string doc, decltype(OpDef::cpu) cpu,
                const Attrs& sample_attrs = {}) {
  OpDef row{.name = std::move(name),
            .operands = "self",
            .results = "values, indices",
            .doc = std::move(doc),
            .kind = Kind::gather,
            .attrs = {integer("dim", -1), flag("keepdim", false)},
            .aten = {{std::move(overload), "self | dim, keepdim"}},
            .infer = infer_selection,
            .cost = cost_of_sort,
            .cpu = cpu,
            .samples = line_samples(sample_attrs)};
  if (sample_attrs.has("k")) {
    row.attrs.push_back(integer("k"));
    row.aten[0].arguments = "self | k, dim, keepdim";
  }
  return row;
}

OpDef whole(std::string name, std::string overload, std::string doc,
            decltype(OpDef::decompose) decompose) {
  return {.name = std::move(name),
          .operands = "self",
          .results = "out",
          .doc = std::move(doc),
          .kind = Kind::composite,
          .aten = {{std::move(overload), "self"}},
          .infer = infer_whole,
          .cost = cost_of_sort,
          .decompose = decompose,
          .samples = {Sample{{reals({4, 9})}}, Sample{{reals({})}}, Sample{{reals({3, 2, 5})}}}};
}

std::vector<OpDef> make_rows() {
  return {
      {.name = "sort",
       .operands = "self",
       .results = "values, indices",
       .doc = "Elements in order along a dimension, and the indices they had.",
       .kind = Kind::gather,
       .attrs = {integer("dim", -1), flag("descending", false)},
       .aten = {{"sort", "self | dim, descending"}, {"sort.stable", "self | dim, descending"}},
       .infer = infer_sort,
       .cost = cost_of_sort,
       .cpu = run_sort,
       .samples = {Sample{{reals({4, 9})}},
                   Sample{{reals({5, 4, 3})}, {{"dim", attr(1)}, {"descending", true}}}}},
      {.name = "topk",
       .operands = "self",
       .results = "values, indices",
       .doc = "The k largest or smallest elements along a dimension, in order.",
       .kind = Kind::gather,
       .attrs = {integer("k"), integer("dim", -1), flag("largest", true)},
       .aten = {{"topk", "self | k, dim, largest"}},
       .infer = infer_topk,
       .cost = cost_of_sort,
       .cpu = run_topk,
       .samples = {Sample{{reals({4, 9})}, {{"k", attr(3)}}},
                   Sample{{reals({5, 4, 3})},
                          {{"k", attr(2)}, {"dim", attr(0)}, {"largest", false}}}}},
      {.name = "unique",
       .operands = "self",
       .results = "values, inverse, counts",
       .doc = "The different elements in order, which of them each element is, and how often each "
              "occurs; an error where there are not `count` of them.",
       .kind = Kind::gather,
       .attrs = {integer("count")},
       .aten = {{"poptorch::unique", "self | count"}},
       .infer = infer_unique,
       .cost = cost_of_sort,
       .cpu = run_unique,
       .samples = {Sample{{booleans({4, 9})}, {{"count", attr(2)}}},
                   Sample{{reals({})}, {{"count", attr(1)}}},
                   Sample{{integers({7, 40}, {0, 3})}, {{"count", attr(3)}}}}},
      selection("median", "median.dim", "The lower median along a dimension; a NaN wins.",
                run_selection<median_rank>),
      selection("nanmedian", "nanmedian.dim",
                "The lower median of the elements that are not NaN along a dimension.",
                run_selection<median_of_numbers_rank>),
      selection("kthvalue", "kthvalue", "The k-th smallest element along a dimension.",
                run_selection<kth_rank>, {{"k", attr(3)}}),
      selection("mode", "mode", "The most frequent element along a dimension.", run_mode),
      whole("median_of_all", "median", "The lower median of all elements; a NaN wins.",
            decompose_whole<false>),
      whole("nanmedian_of_all", "nanmedian", "The lower median of all elements that are not NaN.",
            decompose_whole<true>),
      {.name = "searchsorted",
       .operands = "sorted_sequence, self, sorter?",
       .results = "out",
       .doc = "Where values belong in sorted sequences.",
       .kind = Kind::gather,
       .attrs = {flag("out_int32", false), flag("right", false), maybe(text("side"))},
       .aten = {{"searchsorted.Tensor", "sorted_sequence, self, sorter | out_int32, right, side"},
                {"searchsorted.Scalar", "sorted_sequence, self, sorter | out_int32, right, side"},
                {"bucketize.Tensor", "boundaries, self | out_int32, right"},
                {"bucketize.Scalar", "boundaries, self | out_int32, right"}},
       .infer = infer_search,
       .cost = cost_of_sort,
       .cpu = run_search,
       .samples = {Sample{{integers({5}, {0, 1}), integers({3, 4}, {-1, 3})}},
                   Sample{{integers({2, 5}, {1, 2}), integers({2, 4}, {0, 4})}, {{"right", true}}},
                   Sample{{reals({6}, {1, 1}), reals({}, {0, 2})}}}},
      {.name = "isin",
       .operands = "elements, test_elements",
       .results = "out",
       .doc = "Whether elements are among others.",
       .kind = Kind::gather,
       .attrs = {flag("invert", false)},
       .aten = {{"isin.Tensor_Tensor", "elements, test_elements | invert"},
                {"isin.Tensor_Scalar", "elements, test_element | invert"},
                {"isin.Scalar_Tensor", "element, test_elements | invert"}},
       .infer = infer_member,
       .cost = cost_of_sort,
       .cpu = run_member,
       .samples = {Sample{{integers({3, 7}, {0, 9}), integers({4}, {0, 9})}},
                   Sample{{reals({5}), reals({2, 2})}, {{"invert", true}}},
                   Sample{{integers({5}, {0, 3}), integers({}, {0, 3})}}}},
  };
}

}  // namespace

std::span<const OpDef> families::order() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
