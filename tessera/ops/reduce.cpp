// Folds over dimensions: sums, extremes, norms. Means and variances are in moments.cpp.
#include "tessera/kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/scratch.h"
#include "tessera/kernels/dispatch.h"
#include "tessera/kernels/scalar_math.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/families.h"
#include "tessera/ops/reduce_parts.h"
#include "tessera/ops/row_parts.h"

namespace tessera::families {
namespace {

using namespace row_parts;
using namespace reduce_parts;

// --- attributes and shapes ---

Shape folded_shape(const Shape& shape, const Attrs& attrs) {
  const auto dims = folded_dims(attrs, static_cast<int64_t>(shape.size()));
  const bool keep = attrs.has("keepdim") && attrs.flag("keepdim");
  Shape out;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool folds =
        dims.empty() || std::binary_search(dims.begin(), dims.end(), static_cast<int64_t>(i));
    if (!folds) out.push_back(shape[i]);
    if (folds && keep) out.push_back(1);
  }
  return out;
}

TensorType folded(const OpView& op, DType dtype) {
  return {dtype, folded_shape(op.shape(0), op.attrs())};
}

DType wanted_type(const OpView& op, DType otherwise) {
  return op.attrs().has("dtype") ? op.attrs().dtype("dtype") : otherwise;
}

void check_floating(const OpView& op, DType dtype) {
  check(is_floating(dtype), ErrorKind::type,
        "this needs floating point, not {}; cast the tensor or give a floating dtype",
        name_of(op.type(0).dtype));
}

// Where the fold of nothing has no value. There may be no folds at all.
void check_not_empty(const OpView& op) {
  const Shape& shape = op.shape(0);
  const auto dims = folded_dims(op.attrs(), static_cast<int64_t>(shape.size()));
  bool nothing = dims.empty() && numel(shape) == 0;
  for (const int64_t dim : dims) {
    nothing |= !shape.empty() && shape[static_cast<size_t>(dim)] == 0;
  }
  check(!nothing, ErrorKind::value, "there is no extreme of the empty shape {}", to_string(shape));
}

std::vector<TensorType> infer_sum(const OpView& op) {
  const DType own = op.type(0).dtype;
  return {folded(op, wanted_type(op, is_floating(own) ? own : DType::i64))};
}
std::vector<TensorType> infer_extreme(const OpView& op) {
  check_not_empty(op);
  return {folded(op, op.type(0).dtype)};
}
std::vector<TensorType> infer_index(const OpView& op) {
  check_not_empty(op);
  return {folded(op, DType::i64)};
}
std::vector<TensorType> infer_extreme_and_index(const OpView& op) {
  return {infer_extreme(op)[0], infer_index(op)[0]};
}
std::vector<TensorType> infer_truth(const OpView& op) {
  // PyTorch keeps bytes as they are here.
  return {folded(op, op.type(0).dtype == DType::u8 ? DType::u8 : DType::boolean)};
}
std::vector<TensorType> infer_count(const OpView& op) { return {folded(op, DType::i64)}; }

Cost reduction_cost(const OpView& op, std::span<const TensorType> results) {
  return ReductionCost{numel(op.shape(0)), numel(results[0].shape)};
}

// --- reducers; floats fold in double, whole numbers in 64 bits ---

template <typename A>
struct Sum {
  using Acc = A;
  Acc start() const { return 0; }
  template <typename T>
  void step(Acc& acc, T x, int64_t) const {
    acc += static_cast<Acc>(x);
  }
  void join(Acc& left, const Acc& right) const { left += right; }
};

template <typename A>
struct SumWithoutNan : Sum<A> {
  template <typename T>
  void step(A& acc, T x, int64_t) const {
    if (!is_nan(x)) acc += static_cast<A>(x);
  }
};

template <typename A>
struct Product {
  using Acc = A;
  Acc start() const { return 1; }
  template <typename T>
  void step(Acc& acc, T x, int64_t) const {
    acc = times(acc, static_cast<Acc>(x));
  }
  void join(Acc& left, const Acc& right) const { left = times(left, right); }

 private:
  static Acc times(Acc a, Acc b) {
    if constexpr (std::is_floating_point_v<Acc>) return a * b;
    return static_cast<Acc>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
};

struct Nonzeros {
  using Acc = int64_t;
  Acc start() const { return 0; }
  template <typename T>
  void step(Acc& acc, T x, int64_t) const {
    acc += x != T{};
  }
  void join(Acc& left, const Acc& right) const { left += right; }
};

// The largest (sign 1) or smallest (sign -1) element and where it is first; NaN wins.
template <typename T, int sign>
struct Extreme {
  struct Acc {
    T value{};
    int64_t index = -1;
  };
  Acc start() const { return {}; }
  void step(Acc& acc, T x, int64_t index) const {
    if (acc.index < 0 || beats(x, acc.value)) acc = {x, index};
  }
  void join(Acc& left, const Acc& right) const {
    if (right.index < 0) return;
    const bool better = left.index < 0 || beats(right.value, left.value);
    const bool earlier = !better && !beats(left.value, right.value) && right.index < left.index;
    if (better || earlier) left = right;
  }

 private:
  static bool beats(T a, T b) {
    if (is_nan(b)) return false;
    return is_nan(a) || (sign > 0 ? a > b : a < b);
  }
};

// log(sum(exp(x))) without overflow: the sum is kept relative to the largest element so far.
struct LogSumExp {
  struct Acc {
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  };
  Acc start() const { return {}; }
  void step(Acc& acc, float x, int64_t) const { join(acc, {static_cast<double>(x), 1}); }
  void join(Acc& left, const Acc& right) const {
    if (is_nan(right.largest)) {
      left.sum = right.largest;
    } else if (right.largest == left.largest) {
      left.sum += right.sum;
    } else if (right.largest < left.largest) {
      left.sum += right.sum * std::exp(right.largest - left.largest);
    } else {
      left.sum = left.sum * std::exp(left.largest - right.largest) + right.sum;
      left.largest = right.largest;
    }
  }
};

// Sum of |x|^p, or the extreme of |x| for infinite p.
struct PowerSum {
  double p;

  using Acc = double;
  Acc start() const { return p == -std::numeric_limits<double>::infinity() ? -p : 0; }
  template <typename T>
  void step(Acc& acc, T x, int64_t) const {
    const double size = std::abs(static_cast<double>(x));
    if (p == 2) {
      acc += size * size;
    } else if (p == 1) {
      acc += size;
    } else if (std::isinf(p)) {
      join(acc, size);
    } else {
      acc += p == 0 ? static_cast<double>(size != 0) : std::pow(size, p);
    }
  }
  void join(Acc& left, const Acc& right) const {
    if (!std::isinf(p)) {
      left += right;
    } else {
      left = p > 0 ? maximum(left, right) : minimum(left, right);
    }
  }
  double root(double sum) const {
    if (p == 2) return std::sqrt(sum);
    return p == 1 || p == 0 || std::isinf(p) ? sum : std::pow(sum, 1 / p);
  }
};

// --- kernels ---

// Folds input 0 and stores finish(acc) as the elements of the result, which are of type Out. Each
// pair of types is a kernel of its own: a row has those that its rule allows, and no others.
template <typename Out, typename In, typename Reducer, typename Finish>
void reduce_into(const KernelCall& call, const Reducer& reducer, const Finish& finish) {
  const auto dims = folded_dims(call.attrs, call.inputs[0].rank());
  auto* out = call.outputs[0].as<Out>();
  reduce<In>(call.pool, call.inputs[0], dims, reducer,
             [&](int64_t i, const auto& acc) { out[i] = static_cast<Out>(finish(acc)); });
}

constexpr auto as_it_is = [](auto acc) { return acc; };

// A sum in 64-bit integers, whatever whole numbers or truth values the result is made of.
template <typename In, typename Reducer>
void reduce_into_integers(const KernelCall& call, const Reducer& reducer) {
  using Write = void (*)(const TensorView& out, int64_t i, int64_t sum);
  Write write = nullptr;
  dispatch<Types::integers>(call.outputs[0].dtype, [&]<typename Out>() {
    write = [](const TensorView& out, int64_t i, int64_t sum) {
      out.as<Out>()[i] = static_cast<Out>(sum);
    };
  });
  const auto dims = folded_dims(call.attrs, call.inputs[0].rank());
  reduce<In>(call.pool, call.inputs[0], dims, reducer,
             [&](int64_t i, int64_t sum) { write(call.outputs[0], i, sum); });
}

// For folds in double or 64-bit integers, whichever the result's type asks for.
template <template <typename> typename Reducer>
void run_sum(const KernelCall& call) {
  dispatch<Types::all>(call.inputs[0].dtype, [&]<typename In>() {
    if (is_floating(call.outputs[0].dtype)) {
      reduce_into<float, In>(call, Reducer<double>{}, as_it_is);
    } else {
      reduce_into_integers<In>(call, Reducer<int64_t>{});
    }
  });
}

void run_mean(const KernelCall& call) {
  const double count = static_cast<double>(call.inputs[0].numel()) /
                       static_cast<double>(std::max<int64_t>(call.outputs[0].numel(), 1));
  dispatch<Types::all>(call.inputs[0].dtype, [&]<typename In>() {
    reduce_into<float, In>(call, Sum<double>{}, [count](double sum) { return sum / count; });
  });
}

template <int sign>
void run_extreme(const KernelCall& call) {
  dispatch<Types::all>(call.inputs[0].dtype, [&]<typename In>() {
    reduce_into<In, In>(call, Extreme<In, sign>{}, [](const auto& acc) { return acc.value; });
  });
}

template <int sign>
void run_index(const KernelCall& call) {
  dispatch<Types::all>(call.inputs[0].dtype, [&]<typename In>() {
    reduce_into<int32_t, In>(call, Extreme<In, sign>{}, [](const auto& acc) { return acc.index; });
  });
}

template <int sign>
void run_extreme_and_index(const KernelCall& call) {
  const auto dims = folded_dims(call.attrs, call.inputs[0].rank());
  dispatch<Types::all>(call.inputs[0].dtype, [&]<typename In>() {
    auto* values = call.outputs[0].as<In>();
    auto* indices = call.outputs[1].as<int32_t>();
    reduce<In>(call.pool, call.inputs[0], dims, Extreme<In, sign>{},
               [&](int64_t i, const auto& acc) {
                 values[i] = acc.value;
                 indices[i] = static_cast<int32_t>(acc.index);
               });
  });
}

void run_count(const KernelCall& call) {
  dispatch<Types::all>(call.inputs[0].dtype, [&]<typename In>() {
    reduce_into<int32_t, In>(call, Nonzeros{}, as_it_is);
  });
}

// Truth values, or bytes where the operand is of bytes: the same in memory.
void run_any(const KernelCall& call) {
  dispatch<Types::all>(call.inputs[0].dtype, [&]<typename In>() {
    reduce_into<uint8_t, In>(call, Nonzeros{}, [](int64_t count) { return count > 0; });
  });
}

void run_all(const KernelCall& call) {
  const int64_t folded = call.inputs[0].numel() / std::max<int64_t>(call.outputs[0].numel(), 1);
  dispatch<Types::all>(call.inputs[0].dtype, [&]<typename In>() {
    reduce_into<uint8_t, In>(call, Nonzeros{}, [folded](int64_t count) { return count == folded; });
  });
}

void run_norm(const KernelCall& call) {
  const PowerSum powers{call.attrs.number("p")};
  dispatch<Types::all>(call.inputs[0].dtype, [&]<typename In>() {
    reduce_into<float, In>(call, powers, [&](double sum) { return powers.root(sum); });
  });
}

void run_logsumexp(const KernelCall& call) {
  reduce_into<float, float>(call, LogSumExp{}, [](const LogSumExp::Acc& acc) {
    const bool plain = std::isfinite(acc.largest) || is_nan(acc.sum);
    return plain ? acc.largest + std::log(acc.sum) : acc.largest;
  });
}

std::vector<TensorType> infer_two_extremes(const OpView& op) {
  const TensorType type = infer_extreme(op)[0];
  return {type, type};
}

std::vector<ValueId> decompose_aminmax(Builder& b, const Node& node) {
  return {b.add("amin", node.operands, node.attrs), b.add("amax", node.operands, node.attrs)};
}

// --- rows ---

// Samples with the attributes that the schema knows; a single dimension is the last of the list.
std::vector<Sample> reduce_samples(const AttrSchema& schema, Types types, Domain domain = {}) {
  const auto with = [&](const Ints& list, bool keep) {
    Attrs attrs;
    for (const AttrSpec& spec : schema) {
      if (spec.name == "keepdim") attrs.set("keepdim", keep);
      if (spec.name != "dim") continue;
      if (spec.type == AttrType::integers) attrs.set("dim", list);
      if (spec.type == AttrType::integer) attrs.set("dim", list.back());
    }
    return attrs;
  };
  std::vector<Sample> samples = {
      {{reals({3, 5}, domain)}, with({1}, false)},
      {{reals({3, 5, 7}, domain)}, with({0, -1}, true)},
      {{reals({4, 5, 6}, domain)}, with({0}, false)},
      {{reals({5, 301, 3}, domain)}, with({0, 1}, false)},
      {{reals({2, 40000}, domain)}, with({0, 1}, true)},
      {{reals({40000, 3}, domain)}, with({0}, false)},
      {{reals({1}, domain)}, with({0}, false)},
  };
  bool needs_dim = false;
  for (const AttrSpec& spec : schema)
    needs_dim |= spec.name == "dim" && !spec.fallback && !spec.optional;
  if (!needs_dim) samples.push_back({{reals({}, domain)}});
  if (!needs_dim) samples.push_back({{reals({3, 11}, domain)}});
  for (const DType type : {DType::i32, DType::i16, DType::i8, DType::u8, DType::boolean}) {
    if (is_in(types, type)) samples.push_back({{sample(type, {4, 9}, {-6, 6})}, with({1}, false)});
  }
  return samples;
}

OpDef aminmax(const AttrSchema& attrs) {
  return {.name = "aminmax",
          .operands = "self",
          .results = "min, max",
          .doc = "smallest and largest element; NaN wins",
          .kind = Kind::composite,
          .attrs = attrs,
          .aten = {{"aminmax", "self | dim, keepdim"}},
          .infer = infer_two_extremes,
          .cost = reduction_cost,
          .decompose = decompose_aminmax,
          .samples = reduce_samples(attrs, Types::all)};
}

// A fold in bool is of elements that were made bool one by one: -1 and 1 are not 0 together.
std::vector<ValueId> decompose_bool_fold(Builder& b, const Node& node) {
  const ValueId x = node.operands[0];
  const bool folds_bool = node.attrs.has("dtype") && node.attrs.dtype("dtype") == DType::boolean;
  if (!folds_bool || b.type(x).dtype == DType::boolean) return {};
  return {b.add(node.op, {b.cast(x, DType::boolean)}, node.attrs)};
}

OpDef casts_to_bool_first(OpDef row) {
  row.decompose = decompose_bool_fold;
  return row;
}

std::vector<OpDef> rows_before_moments() {
  const AttrSpec dims = ints("dim", {});
  const AttrSpec one_dim = integer("dim");
  const AttrSpec maybe_dim = maybe(integer("dim"));
  const AttrSpec keepdim = flag("keepdim", false);
  const AttrSpec dtype = maybe(data_type("dtype"));
  const AttrSchema list = {dims, keepdim};
  const AttrSchema list_typed = {dims, keepdim, dtype};
  const std::string whole = "self", along = "self | dim, keepdim";
  const std::string along_typed = "self | dim, keepdim, dtype";
  return {
      casts_to_bool_first(reduction({"sum",
                                     "out",
                                     "sum of the elements",
                                     list_typed,
                                     {{"sum", "self | dtype"}, {"sum.dim_IntList", along_typed}},
                                     infer_sum,
                                     run_sum<Sum>})),
      casts_to_bool_first(reduction({"nansum",
                                     "out",
                                     "sum of the elements that are not NaN",
                                     list_typed,
                                     {{"nansum", along_typed}},
                                     infer_sum,
                                     run_sum<SumWithoutNan>})),
      reduction({"mean",
                 "out",
                 "mean of the elements",
                 list_typed,
                 {{"mean", "self | dtype"}, {"mean.dim", along_typed}},
                 infer_floating,
                 run_mean,
                 Types::floats}),
      casts_to_bool_first(reduction({"prod",
                                     "out",
                                     "product of the elements",
                                     list_typed,
                                     {{"prod", "self | dtype"}, {"prod.dim_int", along_typed}},
                                     infer_sum,
                                     run_sum<Product>,
                                     Types::all,
                                     {0.999, 1.001}})),
      reduction({"amax",
                 "out",
                 "largest element; NaN wins",
                 list,
                 {{"amax", along}, {"max", whole}},
                 infer_extreme,
                 run_extreme<1>}),
      reduction({"amin",
                 "out",
                 "smallest element; NaN wins",
                 list,
                 {{"amin", along}, {"min", whole}},
                 infer_extreme,
                 run_extreme<-1>}),
      aminmax(list),
      reduction({"max",
                 "values, indices",
                 "largest elements along a dimension and where they are first",
                 {one_dim, keepdim},
                 {{"max.dim", along}},
                 infer_extreme_and_index,
                 run_extreme_and_index<1>}),
      reduction({"min",
                 "values, indices",
                 "smallest elements along a dimension and where they are first",
                 {one_dim, keepdim},
                 {{"min.dim", along}},
                 infer_extreme_and_index,
                 run_extreme_and_index<-1>}),
      reduction({"argmax",
                 "out",
                 "where the largest element is first",
                 {maybe_dim, keepdim},
                 {{"argmax", along}},
                 infer_index,
                 run_index<1>,
                 Types::numbers}),
      reduction({"argmin",
                 "out",
                 "where the smallest element is first",
                 {maybe_dim, keepdim},
                 {{"argmin", along}},
                 infer_index,
                 run_index<-1>,
                 Types::numbers}),
      reduction({"any",
                 "out",
                 "whether an element is not zero",
                 list,
                 {{"any", whole}, {"any.dim", along}},
                 infer_truth,
                 run_any}),
      reduction({"all",
                 "out",
                 "whether no element is zero",
                 list,
                 {{"all", whole}, {"all.dim", along}},
                 infer_truth,
                 run_all}),
      reduction({"count_nonzero",
                 "out",
                 "how many elements are not zero",
                 {dims},
                 {{"count_nonzero", "self | dim"}, {"count_nonzero.dim_IntList", "self | dim"}},
                 infer_count,
                 run_count}),
  };
}

std::vector<OpDef> rows_after_moments() {
  const AttrSpec dims = ints("dim", {});
  const AttrSpec keepdim = flag("keepdim", false);
  const AttrSpec dtype = maybe(data_type("dtype"));
  return {
      reduction({"norm",
                 "out",
                 "p-norm of the elements",
                 {number("p", 2), dims, keepdim, dtype},
                 {{"norm.Scalar", "self | p"},
                  {"norm.ScalarOpt_dim", "self | p, dim, keepdim"},
                  {"norm.ScalarOpt_dim_dtype", "self | p, dim, keepdim, dtype"},
                  {"norm.ScalarOpt_dtype", "self | p, dtype"},
                  {"linalg_vector_norm", "self | p=ord, dim, keepdim, dtype"}},
                 infer_floating,
                 run_norm,
                 Types::floats}),
      reduction({"logsumexp",
                 "out",
                 "logarithm of the sum of exponentials",
                 {ints("dim"), keepdim},
                 {{"logsumexp", "self | dim, keepdim"}},
                 infer_floating,
                 run_logsumexp,
                 Types::floats}),
  };
}

}  // namespace

std::span<const OpDef> reduce() {
  static const std::vector<OpDef> rows = [] {
    std::vector<OpDef> all = rows_before_moments();
    for (auto more : {moment_rows(), rows_after_moments()}) {
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }();
  return rows;
}

}  // namespace tessera::families

namespace tessera::reduce_parts {

using namespace families;

ScratchShape folded_dims(const Attrs& attrs, int64_t rank) {
  const Attr* attr = attrs.find("dim");
  if (!attr) return {};
  ScratchShape dims;
  if (const auto* one = std::get_if<int64_t>(attr)) {
    dims = {*one};
  } else {
    dims = scratch_copy(std::get<std::vector<int64_t>>(*attr));
  }
  for (int64_t& dim : dims) dim = wrap_dim(dim, rank);
  std::sort(dims.begin(), dims.end());
  check(std::adjacent_find(dims.begin(), dims.end()) == dims.end(), ErrorKind::value,
        "a dimension is named twice in {}", to_string(dims));
  return rank == 0 ? ScratchShape{} : dims;
}

std::vector<TensorType> infer_floating(const OpView& op) {
  const DType dtype = wanted_type(op, op.type(0).dtype);
  check_floating(op, dtype);
  return {folded(op, dtype)};
}
OpDef reduction(ReduceRow row) {
  OpDef def{.name = std::move(row.name),
            .operands = "self",
            .results = std::move(row.results),
            .doc = std::move(row.doc),
            .kind = Kind::reduction,
            .attrs = std::move(row.attrs),
            .aten = std::move(row.aten),
            .infer = row.infer,
            .cost = reduction_cost,
            .cpu = row.cpu};
  def.samples = reduce_samples(def.attrs, row.types, row.domain);
  return def;
}

}  // namespace tessera::reduce_parts
