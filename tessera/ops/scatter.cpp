// Single elements along a dimension: gather and scatter.
#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/kernels/gather.h"
#include "tessera/ops/index_parts.h"
#include "tessera/ops/row_parts.h"

namespace tessera::index_parts {
namespace {

using namespace row_parts;

void check_line_index(const Shape& shape, const Shape& index, const Attrs& attrs, bool all_dims,
                      std::string_view what) {
  check(std::max<size_t>(1, shape.size()) == std::max<size_t>(1, index.size()),
        "{}: a tensor of shape {} and an index of shape {} have different numbers of dimensions",
        what, to_string(shape), to_string(index));
  if (shape.empty() || index.empty()) return;
  const auto dim = static_cast<size_t>(dim_of(attrs, shape.size()));
  for (size_t d = 0; d < shape.size(); ++d) {
    check((d == dim && !all_dims) || index[d] <= shape[d],
          "{}: an index of shape {} is larger than a tensor of shape {} in dimension {}", what,
          to_string(index), to_string(shape), d);
  }
}

std::vector<TensorType> infer_gather(const OpView& op) {
  check_index(op.type(1), "gather");
  check_line_index(op.shape(0), op.shape(1), op.attrs(), false, "gather");
  return {{op.type(0).dtype, op.shape(1)}};
}

void run_gather(const KernelCall& call) {
  if (call.outputs[0].numel() == 0) return;
  kernels::gather(call.inputs[0], dim_of(call, call.inputs[0]), call.inputs[1], call.outputs[0],
                  call.pool);
}

std::vector<TensorType> infer_scatter(const OpView& op) {
  constexpr std::string_view what = "scatter";
  check_index(op.type(1), what);
  check_line_index(op.shape(0), op.shape(1), op.attrs(), false, what);
  if (op.count() > 2) {
    check_same_dtype(op.type(0), op.type(2), what);
    check_line_index(op.shape(2), op.shape(1), op.attrs(), true, what);
  }
  return {op.type(0)};
}

template <kernels::Combine combine>
void run_scatter(const KernelCall& call) {
  const TensorView& out = start_from_first(call);
  kernels::Scatter scatter;
  scatter.index = call.inputs[1];
  scatter.source.present = call.has_input(2);
  if (scatter.source.present) scatter.source = call.inputs[2];
  scatter.dim = dim_of(call, out);
  if (call.attrs.has("value")) scatter.value = call.attrs.number("value");
  scatter.combine = combine;
  if (scatter.index.numel() > 0) kernels::scatter(scatter, out, call.pool);
}

std::optional<kernels::Combine> combine_named(std::string_view name) {
  using enum kernels::Combine;
  if (name == "sum" || name == "add") return add;
  if (name == "prod" || name == "multiply") return multiply;
  if (name == "mean") return mean;
  if (name == "amax") return largest;
  if (name == "amin") return smallest;
  return std::nullopt;
}

std::vector<TensorType> infer_scatter_reduce(const OpView& op) {
  check_reduce(op.attrs());
  return infer_scatter(op);
}

void run_scatter_reduce(const KernelCall& call) {
  const TensorView& out = start_from_first(call);
  if (call.inputs[1].numel() == 0) return;
  kernels::Scatter scatter;
  scatter.index = call.inputs[1];
  scatter.source = call.inputs[2];
  scatter.dim = dim_of(call, out);
  scatter.combine = combine_named(call.attrs.text("reduce")).value();
  scatter.include_self = call.attrs.flag("include_self");
  kernels::scatter(scatter, out, call.pool);
}

}  // namespace

AttrSchema reduce_attrs() { return {integer("dim"), text("reduce"), flag("include_self", true)}; }

void check_reduce(const Attrs& attrs) {
  check(combine_named(attrs.text("reduce")).has_value(), ErrorKind::value,
        "reduce must be 'sum', 'prod', 'mean', 'amax' or 'amin', not '{}'", attrs.text("reduce"));
}

std::vector<Sample> reduce_samples(bool slices) {
  std::vector<Sample> samples;
  for (const char* reduce : {"sum", "prod", "mean", "amax", "amin"}) {
    if (slices && std::string_view(reduce) == "sum") continue;  // that is index_add
    for (const bool include_self : {true, false}) {
      for (const DType dtype : {DType::f32, DType::i32}) {
        const SampleOperand index = integers(slices ? Shape{7} : Shape{4, 7, 3}, {0, 5});
        samples.push_back(
            {{sample(dtype, {4, 5, 3}, {-4, 4}), index, sample(dtype, {4, 7, 3}, {-4, 4})},
             {{"dim", attr(1)}, {"reduce", std::string(reduce)}, {"include_self", include_self}}});
      }
    }
  }
  return samples;
}

std::vector<OpDef> gather_and_scatter_rows() {
  const Traits over_first = {.in_place = {{0, 0}}};
  const AttrSpec dim = integer("dim");
  return {
      {.name = "gather",
       .operands = "self, index",
       .results = "out",
       .doc = "Single elements along a dimension, each picked by its index.",
       .kind = Kind::gather,
       .attrs = {dim},
       .aten = {{"gather", "self, index | dim"}},
       .traits = {.moves_elements = true},
       .infer = infer_gather,
       .cost = cost_of_gather,
       .cpu = run_gather,
       .samples = {Sample{{reals({4, 5}), integers({3, 6}, {0, 5})}, {{"dim", attr(1)}}},
                   Sample{{reals({4, 5, 2}), integers({7, 5, 2}, {0, 4})}, {{"dim", attr(-3)}}}}},
      {.name = "scatter",
       .operands = "self, index, src",
       .results = "out",
       .doc = "self with elements of src written where their index says.",
       .kind = Kind::gather,
       .attrs = {dim},
       .aten = {{"scatter.src", "self, index, src | dim"}},
       .traits = {.in_place = {{0, 0}}, .moves_elements = true},
       .infer = infer_scatter,
       .cost = cost_of_scatter<1>,
       .cpu = run_scatter<kernels::Combine::replace>,
       // One element for each line: several at one place have no order in PyTorch.
       .samples = {Sample{{reals({4, 5}), integers({4, 1}, {0, 5}), reals({4, 1})},
                          {{"dim", attr(1)}}}}},
      {.name = "scatter_value",
       .operands = "self, index",
       .results = "out",
       .doc = "self with one value written where an index says.",
       .kind = Kind::gather,
       .attrs = {dim, number("value")},
       .aten = {{"scatter.value", "self, index | dim, value"}},
       .traits = {.in_place = {{0, 0}}, .moves_elements = true},
       .infer = infer_scatter,
       .cost = cost_of_scatter<1>,
       .cpu = run_scatter<kernels::Combine::replace>,
       .samples = {Sample{{reals({4, 5}), integers({3, 2}, {0, 5})},
                          {{"dim", attr(1)}, {"value", 9.0}}}}},
      {.name = "scatter_add",
       .operands = "self, index, src",
       .results = "out",
       .doc = "self with elements of src added where their index says.",
       .kind = Kind::gather,
       .attrs = {dim},
       .aten = {{"scatter_add", "self, index, src | dim"}},
       .traits = over_first,
       .infer = infer_scatter,
       .cost = cost_of_scatter<1>,
       .cpu = run_scatter<kernels::Combine::add>,
       .samples = {Sample{{reals({4, 5}), integers({3, 9}, {0, 5}), reals({3, 9})},
                          {{"dim", attr(1)}}},
                   Sample{{reals({4, 5}), integers({6, 5}, {0, 4}), reals({7, 5})},
                          {{"dim", attr(0)}}}}},
      {.name = "scatter_reduce",
       .operands = "self, index, src",
       .results = "out",
       .doc = "self with elements of src combined into it where their index says.",
       .kind = Kind::gather,
       .attrs = reduce_attrs(),
       .aten = {{"scatter_reduce.two", "self, index, src | dim, reduce, include_self"},
                {"scatter.reduce", "self, index, src | dim, reduce"}},
       .traits = over_first,
       .infer = infer_scatter_reduce,
       .cost = cost_of_scatter<1>,
       .cpu = run_scatter_reduce,
       .samples = reduce_samples(false)},
  };
}

}  // namespace tessera::index_parts
