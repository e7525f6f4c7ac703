// Running folds: every element together with all before it along a dimension.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/kernels/copy.h"
#include "tessera/kernels/dispatch.h"
#include "tessera/kernels/elementwise.h"
#include "tessera/kernels/scalar_math.h"
#include "tessera/ops/families.h"
#include "tessera/ops/row_parts.h"

namespace tessera::families {
namespace {

using namespace row_parts;

int64_t dim_of(const OpView& op) {
  return wrap_dim(op.attrs().integer("dim"), static_cast<int64_t>(op.shape(0).size()));
}

std::vector<TensorType> infer_scan(const OpView& op) {
  dim_of(op);
  DType dtype = op.type(0).dtype;
  if (!is_floating(dtype)) dtype = DType::i64;
  if (op.attrs().has("dtype")) dtype = op.attrs().dtype("dtype");
  return {{dtype, op.shape(0)}};
}

std::vector<TensorType> infer_floating_scan(const OpView& op) {
  dim_of(op);
  check(is_floating(op.type(0).dtype), ErrorKind::type,
        "logcumsumexp needs floating point, not {}; cast the tensor first",
        name_of(op.type(0).dtype));
  return {op.type(0)};
}

std::vector<TensorType> infer_extreme_scan(const OpView& op) {
  dim_of(op);
  return {op.type(0), {DType::i64, op.shape(0)}};
}

Cost scan_cost(const OpView& op, std::span<const TensorType> results) {
  return ReductionCost{numel(op.shape(0)), numel(results[0].shape)};
}

// Calls visit(first element, distance of elements, count) for every line along the dimension. Lines
// are independent, so they are the pieces.
template <typename Visit>
void for_each_line(const KernelCall& call, const Visit& visit) {
  const TensorView& x = call.inputs[0];
  const int64_t dim = wrap_dim(call.attrs.integer("dim"), x.rank());
  int64_t outer = 1, size = 1, inner = 1;
  for (int64_t i = 0; i < x.rank(); ++i) {
    (i < dim ? outer : i == dim ? size : inner) *= x.sizes[static_cast<size_t>(i)];
  }
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / std::max<int64_t>(size, 1));
  call.pool.run_ranges(outer * inner, grain, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      visit(line / inner * size * inner + line % inner, inner, size);
    }
  });
}

// Whole numbers are folded in 64 bits that wrap, floats in double.
template <typename Out>
using Accumulator = std::conditional_t<std::is_floating_point_v<Out>, double, uint64_t>;

template <auto fold, int start>
void run_scan(const KernelCall& call) {
  const kernels::Dense x(call.inputs[0], call.pool);
  const TensorView& out = call.outputs[0];
  dispatch<Types::all>(x.view().dtype, [&]<typename In>() {
    dispatch<Types::all>(out.dtype, [&]<typename Out>() {
      using Acc = Accumulator<Out>;
      for_each_line(call, [&](int64_t at, int64_t step, int64_t count) {
        Acc acc = start;
        for (int64_t k = 0; k < count; ++k, at += step) {
          acc = fold(acc, static_cast<Acc>(convert<Out>(x.as<In>()[at])));
          out.as<Out>()[at] = static_cast<Out>(acc);
        }
      });
    });
  });
}

void run_logcumsumexp(const KernelCall& call) {
  const kernels::Dense x(call.inputs[0], call.pool);
  auto* out = call.outputs[0].as<float>();
  for_each_line(call, [&](int64_t at, int64_t step, int64_t count) {
    double sum = -std::numeric_limits<double>::infinity();
    for (int64_t k = 0; k < count; ++k, at += step) {
      const auto value = static_cast<double>(x.as<float>()[at]);
      const double high = maximum(sum, value);
      const double low = minimum(sum, value);
      const bool same_infinity = std::isinf(high) && low == high;
      sum = same_infinity ? high : high + std::log1p(std::exp(low - high));
      out[at] = static_cast<float>(sum);
    }
  });
}

// The extreme so far and where it is; the last of equal ones, NaN before all.
template <int sign>
void run_extreme_scan(const KernelCall& call) {
  const kernels::Dense x(call.inputs[0], call.pool);
  dispatch<Types::all>(x.view().dtype, [&]<typename T>() {
    auto* values = call.outputs[0].as<T>();
    auto* indices = call.outputs[1].as<int32_t>();
    for_each_line(call, [&](int64_t at, int64_t step, int64_t count) {
      T best{};
      int32_t index = -1;
      for (int64_t k = 0; k < count; ++k, at += step) {
        const T value = x.as<T>()[at];
        const bool reaches = sign > 0 ? value >= best : value <= best;
        if (index < 0 || is_nan(value) || (!is_nan(best) && reaches)) {
          best = value;
          index = static_cast<int32_t>(k);
        }
        values[at] = best;
        indices[at] = index;
      }
    });
  });
}

std::vector<Sample> scan_samples(Types types, Domain domain = {}) {
  std::vector<Sample> samples;
  const auto add = [&](SampleOperand operand, int64_t dim) {
    samples.push_back({{std::move(operand)}, {{"dim", dim}}});
  };
  add(reals({3, 5}, domain), 1);
  add(reals({3, 5, 7}, domain), -1);
  add(reals({4, 5, 6}, domain), 0);
  add(reals({5, 301, 3}, domain), 1);
  add(reals({2, 40000}, domain), 1);
  add(reals({40000, 3}, domain), 0);
  add(reals({1}, domain), 0);
  add(reals({}, domain), 0);
  for (const DType dtype : {DType::i32, DType::i16, DType::i8, DType::u8, DType::boolean}) {
    if (is_in(types, dtype)) add(sample(dtype, {4, 9}, {-6, 6}), 1);
  }
  return samples;
}

std::vector<OpDef> make_rows() {
  constexpr Domain near_one{0.999, 1.001};
  const AttrSchema typed = {integer("dim"), maybe(data_type("dtype"))};
  const AttrSchema dim = {integer("dim")};
  return {
      {.name = "cumsum",
       .operands = "self",
       .results = "out",
       .doc = "sums from the front of a dimension up to each element",
       .kind = Kind::reduction,
       .attrs = typed,
       .aten = {{"cumsum", "self | dim, dtype"}},
       .infer = infer_scan,
       .cost = scan_cost,
       .cpu = run_scan<[](auto a, auto b) { return a + b; }, 0>,
       .samples = scan_samples(Types::all)},
      {.name = "cumprod",
       .operands = "self",
       .results = "out",
       .doc = "products from the front of a dimension up to each element",
       .kind = Kind::reduction,
       .attrs = typed,
       .aten = {{"cumprod", "self | dim, dtype"}},
       .infer = infer_scan,
       .cost = scan_cost,
       .cpu = run_scan<[](auto a, auto b) { return a * b; }, 1>,
       .samples = scan_samples(Types::all, near_one)},
      {.name = "logcumsumexp",
       .operands = "self",
       .results = "out",
       .doc = "logarithms of the sums of exponentials up to each element",
       .kind = Kind::reduction,
       .attrs = dim,
       .aten = {{"logcumsumexp", "self | dim"}, {"_logcumsumexp", "self | dim"}},
       .infer = infer_floating_scan,
       .cost = scan_cost,
       .cpu = run_logcumsumexp,
       .samples = scan_samples(Types::floats)},
      {.name = "cummax",
       .operands = "self",
       .results = "values, indices",
       .doc = "largest elements up to each element, and where they are last",
       .kind = Kind::reduction,
       .attrs = dim,
       .aten = {{"cummax", "self | dim"}},
       .infer = infer_extreme_scan,
       .cost = scan_cost,
       .cpu = run_extreme_scan<1>,
       .samples = scan_samples(Types::all)},
      {.name = "cummin",
       .operands = "self",
       .results = "values, indices",
       .doc = "smallest elements up to each element, and where they are last",
       .kind = Kind::reduction,
       .attrs = dim,
       .aten = {{"cummin", "self | dim"}},
       .infer = infer_extreme_scan,
       .cost = scan_cost,
       .cpu = run_extreme_scan<-1>,
       .samples = scan_samples(Types::all)},
  };
}

}  // namespace

std::span<const OpDef> scan() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera::families
