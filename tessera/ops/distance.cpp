// Distances between points and norms of slices: what is made of norms.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/kernels/copy.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/families.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

// ---- Distances of all pairs: [..., p, m] and [..., r, m] to [..., p, r]

struct Pairs {
  int64_t batch = 1, left = 1, right = 1, depth = 1;

  Pairs(std::span<const int64_t> a, std::span<const int64_t> b) {
    const size_t rank = a.size();
    batch = numel(a.first(rank - 2));
    left = a[rank - 2];
    right = b[rank - 2];
    depth = a[rank - 1];
  }
};

Shape pairs_shape(const OpView& op, size_t first) {
  const Shape& a = op.shape(first);
  const Shape& b = op.shape(first + 1);
  const bool fits = a.size() >= 2 && a.size() == b.size() && a.back() == b.back() &&
                    std::equal(a.begin(), a.end() - 2, b.begin());
  check(fits, "cdist: points of shapes {} and {} cannot be paired", to_string(a), to_string(b));
  check(is_floating(op.type(first).dtype) && op.type(first).dtype == op.type(first + 1).dtype,
        ErrorKind::type, "cdist: wanted floating point of one type, got {} and {}",
        name_of(op.type(first).dtype), name_of(op.type(first + 1).dtype));
  check(op.attrs().number("p") >= 0, ErrorKind::value, "cdist: p must not be negative, got {}",
        op.attrs().number("p"));
  Shape shape = a;
  shape.back() = b[b.size() - 2];
  return shape;
}

std::vector<TensorType> infer_cdist(const OpView& op) {
  return {{op.type(0).dtype, pairs_shape(op, 0)}};
}

std::vector<TensorType> infer_cdist_backward(const OpView& op) {
  const Shape shape = pairs_shape(op, 1);
  const OperandChecks operands(op, "cdist");
  operands.floating(0, "the gradient", shape);
  operands.floating(3, "the distances", shape);
  return {op.type(1)};
}

template <size_t first>
Cost cost_of_pairs(const OpView& op, std::span<const TensorType>) {
  const Pairs pairs(op.shape(first), op.shape(first + 1));
  return ReductionCost{pairs.batch * pairs.left * pairs.right * std::max<int64_t>(pairs.depth, 1),
                       pairs.batch * pairs.left * pairs.right};
}

double distance(const float* a, const float* b, int64_t depth, double p) {
  double sum = 0;
  for (int64_t k = 0; k < depth; ++k) {
    const double difference = std::abs(static_cast<double>(a[k]) - static_cast<double>(b[k]));
    if (std::isnan(difference)) return difference;
    if (p == 0) {
      sum += difference != 0 ? 1 : 0;
    } else if (p == 1) {
      sum += difference;
    } else if (p == 2) {
      sum += difference * difference;
    } else if (std::isinf(p)) {
      sum = std::max(sum, difference);
    } else {
      sum += std::pow(difference, p);
    }
  }
  if (p == 0 || p == 1 || std::isinf(p)) return sum;
  return p == 2 ? std::sqrt(sum) : std::pow(sum, 1 / p);
}

void run_cdist(const KernelCall& call) {
  if (call.outputs[0].numel() == 0) return;
  const kernels::Dense a(call.inputs[0], call.pool);
  const kernels::Dense b(call.inputs[1], call.pool);
  const double p = call.attrs.number("p");
  const Pairs pairs(a.view().sizes, b.view().sizes);
  auto* out = call.outputs[0].as<float>();
  const int64_t grain =
      std::max<int64_t>(1, 16384 / (pairs.right * std::max<int64_t>(pairs.depth, 1)));
  call.pool.run_ranges(pairs.batch * pairs.left, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* from = a.as<float>() + i * pairs.depth;
      const float* to = b.as<float>() + i / pairs.left * pairs.right * pairs.depth;
      for (int64_t j = 0; j < pairs.right; ++j) {
        out[i * pairs.right + j] =
            static_cast<float>(distance(from, to + j * pairs.depth, pairs.depth, p));
      }
    }
  });
}

// How a distance grows with one coordinate's difference.
double distance_slope(double difference, double dist, double p) {
  if (p == 0 || dist == 0 || difference == 0) return 0;
  const double sign = difference > 0 ? 1 : -1;
  if (p == 1) return sign;
  if (p == 2) return difference / dist;
  if (std::isinf(p)) return std::abs(difference) == dist ? sign : 0;
  return sign * std::pow(std::abs(difference) / dist, p - 1);
}

void run_cdist_backward(const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  if (out.numel() == 0) return;
  const kernels::Dense grad(call.inputs[0], call.pool);
  const kernels::Dense a(call.inputs[1], call.pool);
  const kernels::Dense b(call.inputs[2], call.pool);
  const kernels::Dense dist(call.inputs[3], call.pool);
  const double p = call.attrs.number("p");
  const Pairs pairs(a.view().sizes, b.view().sizes);
  const int64_t grain =
      std::max<int64_t>(1, 16384 / std::max<int64_t>(1, pairs.right * pairs.depth));
  call.pool.run_ranges(pairs.batch * pairs.left, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* from = a.as<float>() + i * pairs.depth;
      const float* others = b.as<float>() + i / pairs.left * pairs.right * pairs.depth;
      for (int64_t k = 0; k < pairs.depth; ++k) {
        double sum = 0;
        for (int64_t j = 0; j < pairs.right; ++j) {
          const int64_t pair = i * pairs.right + j;
          // In float, as the infinite norm finds its coordinate by comparing for equality.
          const float difference = from[k] - others[j * pairs.depth + k];
          sum += static_cast<double>(grad.as<float>()[pair]) *
                 distance_slope(difference, dist.as<float>()[pair], p);
        }
        out.as<float>()[i * pairs.depth + k] = static_cast<float>(sum);
      }
    }
  });
}

// ---- One distance, and slices brought to a norm

std::vector<TensorType> infer_dist(const OpView& op) {
  check(is_floating(op.type(0).dtype), ErrorKind::type, "dist: wanted floating point, got {}",
        name_of(op.type(0).dtype));
  broadcast(op.shape(0), op.shape(1));
  return {{op.type(0).dtype, {}}};
}

Cost cost_of_all(const OpView& op, std::span<const TensorType>) {
  return ReductionCost{numel(op.shape(0)), 1};
}

std::vector<ValueId> decompose_dist(Builder& b, const Node& node) {
  const ValueId difference = b.add("sub", {node.operands[0], node.operands[1]});
  return {b.add("norm", {difference}, {{"p", node.attrs.number("p")}})};
}

Ints all_but(int64_t dim, size_t rank) {
  dim = wrap_dim(dim, static_cast<int64_t>(rank));
  Ints dims;
  for (int64_t d = 0; d < static_cast<int64_t>(rank); ++d) {
    if (d != dim) dims.push_back(d);
  }
  return dims;
}

std::vector<TensorType> infer_renorm(const OpView& op) {
  check(op.shape(0).size() >= 2 && is_floating(op.type(0).dtype),
        "renorm: wanted floating point of 2 or more dimensions, got {}", to_string(op.type(0)));
  wrap_dim(op.attrs().integer("dim"), static_cast<int64_t>(op.shape(0).size()));
  return {op.type(0)};
}

Cost cost_of_scaling(const OpView& op, std::span<const TensorType>) {
  return ElementwiseCost{numel(op.shape(0)), 4};
}

std::vector<ValueId> decompose_renorm(Builder& b, const Node& node) {
  const ValueId x = node.operands[0];
  const DType dtype = b.type(x).dtype;
  const double most = node.attrs.number("maxnorm");
  const ValueId norm = b.add("norm", {x},
                             {{"p", node.attrs.number("p")},
                              {"dim", all_but(node.attrs.integer("dim"), b.shape(x).size())},
                              {"keepdim", true}});
  const ValueId limit = b.scalar(most, dtype);
  const ValueId safe = b.add("add", {norm, b.scalar(1e-7, dtype)});
  const ValueId scale =
      b.add("where", {b.add("gt", {norm, limit}), b.add("div", {limit, safe}), b.scalar(1, dtype)});
  return {b.add("mul", {x, scale})};
}

// ---- Weight normalisation: v scaled so that its slices along a dimension have the norms g

Shape norms_shape(const Shape& v, const Attrs& attrs) {
  const auto dim =
      static_cast<size_t>(wrap_dim(attrs.integer("dim"), static_cast<int64_t>(v.size())));
  Shape norms(v.size(), 1);
  if (!v.empty()) norms[dim] = v[dim];
  return norms;
}

std::vector<TensorType> infer_weight_norm(const OpView& op) {
  const Shape norms = norms_shape(op.shape(0), op.attrs());
  OperandChecks(op, "weight_norm").floating(0, "v");
  OperandChecks(op, "weight_norm").floating(1, "g");
  check(numel(op.shape(1)) == numel(norms), "weight_norm: g has shape {}, wanted {}",
        to_string(op.shape(1)), to_string(norms));
  return {op.type(0), {op.type(0).dtype, norms}};
}

std::vector<ValueId> decompose_weight_norm(Builder& b, const Node& node) {
  const ValueId v = node.operands[0];
  const Ints dims = all_but(node.attrs.integer("dim"), b.shape(v).size());
  const ValueId norms = dims.empty()
                            ? b.add("abs", {v})
                            : b.add("norm", {v}, {{"p", 2.0}, {"dim", dims}, {"keepdim", true}});
  const ValueId g = b.reshape(node.operands[1], b.shape(norms));
  return {b.add("mul", {v, b.add("div", {g, norms})}), norms};
}

std::vector<TensorType> infer_weight_norm_backward(const OpView& op) {
  const OperandChecks operands(op, "weight_norm");
  operands.floating(1, "v");
  operands.floating(0, "the gradient", op.shape(1));
  const Shape norms = norms_shape(op.shape(1), op.attrs());
  operands.floating(3, "the norms", norms);
  operands.floating(2, "g");
  check(numel(op.shape(2)) == numel(norms), "weight_norm: g has shape {}, wanted {}",
        to_string(op.shape(2)), to_string(norms));
  return {op.type(1), op.type(2)};
}

std::vector<ValueId> decompose_weight_norm_backward(Builder& b, const Node& node) {
  const ValueId grad = node.operands[0];
  const ValueId v = node.operands[1];
  const ValueId norms = node.operands[3];
  const ValueId g = b.reshape(node.operands[2], b.shape(norms));
  const Ints dims = all_but(node.attrs.integer("dim"), b.shape(v).size());
  ValueId along = b.add("mul", {grad, v});
  if (!dims.empty()) along = b.add("sum", {along}, {{"dim", dims}, {"keepdim", true}});
  const ValueId grad_g = b.add("div", {along, norms});
  const ValueId share = b.add("div", {grad_g, norms});
  const ValueId across = b.add("sub", {grad, b.add("mul", {v, share})});
  const ValueId grad_v = b.add("mul", {b.add("div", {g, norms}), across});
  return {grad_v, b.reshape(grad_g, b.shape(node.operands[2]))};
}

std::vector<OpDef> make_rows() {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::vector<Sample> distances, backward;
  for (const double p : {2.0, 1.0, 0.0, 3.5, 1.5, infinity}) {
    distances.push_back({{reals({2, 5, 4}), reals({2, 3, 4})}, {{"p", p}}});
    backward.push_back(
        {{reals({5, 3}), reals({5, 4}), reals({3, 4}), reals({5, 3}, {0.5, 4})}, {{"p", p}}});
  }
  distances.push_back({{reals({40, 6}), reals({50, 6})}, {{"p", 2.0}}});
  return {
      {.name = "cdist",
       .operands = "x1, x2",
       .results = "out",
       .doc = "The p-norm distance of every pair of points.",
       .kind = Kind::reduction,
       .attrs = {number("p", 2)},
       .aten = {{"_cdist_forward", "x1, x2 | p"}, {"_euclidean_dist", "x1, x2 | p=#2.0"}},
       .infer = infer_cdist,
       .cost = cost_of_pairs<0>,
       .cpu = run_cdist,
       .samples = distances},
      {.name = "cdist_backward",
       .operands = "grad, x1, x2, cdist",
       .results = "grad_x1",
       .doc = "The gradient of cdist by its first points.",
       .kind = Kind::reduction,
       .attrs = {number("p", 2)},
       .aten = {{"_cdist_backward", "grad, x1, x2, cdist | p"}},
       .infer = infer_cdist_backward,
       .cost = cost_of_pairs<1>,
       .cpu = run_cdist_backward,
       .samples = backward},
      {.name = "dist",
       .operands = "self, other",
       .results = "out",
       .doc = "The p-norm of the difference of two tensors.",
       .kind = Kind::composite,
       .attrs = {number("p", 2)},
       .aten = {{"dist", "self, other | p"}},
       .traits = {.promotion = Promotion::common},
       .infer = infer_dist,
       .cost = cost_of_all,
       .decompose = decompose_dist,
       .samples = {Sample{{reals({3, 5}), reals({5})}},
                   Sample{{reals({7}), reals({7})}, {{"p", 3.0}}}}},
      {.name = "renorm",
       .operands = "self",
       .results = "out",
       .doc = "Slices along a dimension scaled down where their p-norm is above maxnorm.",
       .kind = Kind::composite,
       .attrs = {number("p", 2), integer("dim", 0), number("maxnorm", 1)},
       .aten = {{"renorm", "self | p, dim, maxnorm"}},
       .infer = infer_renorm,
       .cost = cost_of_scaling,
       .decompose = decompose_renorm,
       .samples = {Sample{{reals({4, 5})}, {{"dim", attr(0)}, {"maxnorm", 2.5}}},
                   Sample{{reals({3, 4, 5})}, {{"p", 1.0}, {"dim", attr(-2)}, {"maxnorm", 13.0}}}}},
      {.name = "weight_norm",
       .operands = "v, g",
       .results = "out, norms",
       .doc = "v scaled so that its slices along a dimension have the norms g.",
       .kind = Kind::composite,
       .attrs = {integer("dim", 0)},
       .aten = {{"_weight_norm_interface", "v, g | dim"}},
       .infer = infer_weight_norm,
       .cost = cost_of_scaling,
       .decompose = decompose_weight_norm,
       .samples = {Sample{{reals({4, 3, 2}), reals({4, 1, 1})}, {{"dim", attr(0)}}},
                   Sample{{reals({4, 6}), reals({1, 6})}, {{"dim", attr(1)}}}}},
      {.name = "weight_norm_backward",
       .operands = "grad_w, saved_v, saved_g, saved_norms",
       .results = "grad_v, grad_g",
       .doc = "The gradients of weight_norm.",
       .kind = Kind::composite,
       .attrs = {integer("dim", 0)},
       .aten = {{"_weight_norm_interface_backward", "grad_w, saved_v, saved_g, saved_norms | dim"}},
       .infer = infer_weight_norm_backward,
       .cost = cost_of_scaling,
       .decompose = decompose_weight_norm_backward,
       .samples = {Sample{
           {reals({4, 3, 2}), reals({4, 3, 2}), reals({4, 1, 1}), reals({4, 1, 1}, {0.5, 3})},
           {{"dim", attr(0)}}}}},
  };
}

}  // namespace

std::span<const OpDef> families::distance() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
