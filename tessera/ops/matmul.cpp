// Matrix products. One primitive; everything that scales or adds is taken apart.
#include "tessera/base/error.h"
#include "tessera/kernels/gemm.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/families.h"
#include "tessera/ops/partials.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

TensorType product_type(const TensorType& a, const TensorType& b, size_t rank) {
  check(a.shape.size() == rank && b.shape.size() == rank,
        "matrix product: wanted two tensors of {} dimensions, got {} and {}", rank, to_string(a),
        to_string(b));
  check(a.dtype == b.dtype, ErrorKind::type,
        "matrix product: the types {} and {} differ; cast one of them", name_of(a.dtype),
        name_of(b.dtype));
  check(a.dtype != DType::boolean, ErrorKind::type,
        "matrix product: boolean matrices cannot be multiplied; cast them to float");
  check(rank == 2 || a.shape[0] == b.shape[0],
        "matrix product: batches of {} and {} matrices cannot be paired", a.shape[0], b.shape[0]);
  check(a.shape[rank - 1] == b.shape[rank - 2],
        "matrix product: the inner sizes of {} and {} differ", to_string(a.shape),
        to_string(b.shape));
  Shape shape = a.shape;
  shape.back() = b.shape.back();
  return {a.dtype, shape};
}

std::vector<TensorType> infer_matmul(const OpView& op) {
  check_partials(op);
  return {product_type(op.type(0), op.type(1), op.shape(0).size() == 3 ? 3 : 2)};
}

ContractionCost product_cost(const Shape& a, const Shape& b, DType dtype) {
  const size_t r = a.size() - 2;
  ContractionCost cost;
  cost.groups = r ? a[0] : 1;
  cost.batch = a[r];
  cost.in = a[r + 1];
  cost.out = b[r + 1];
  cost.type = dtype;
  cost.multiply_adds = cost.groups * cost.batch * cost.in * cost.out;
  return cost;
}

Cost cost_of_matmul(const OpView& op, std::span<const TensorType> results) {
  return product_cost(op.shape(0), op.shape(1), results[0].dtype);
}

void run_matmul(const KernelCall& call) {
  kernels::matmul(call.inputs[0], call.inputs[1], call.outputs[0], call.pool, partials_of(call));
}

// ---- Products that are scaled and added to something: beta * self + alpha * product

ValueId scaled(Builder& b, ValueId value, double factor) {
  if (factor == 1) return value;
  return b.add("mul", {value, b.scalar(factor, b.type(value).dtype)});
}

ValueId scale_and_add(Builder& b, const Node& node, ValueId product) {
  const double beta = node.attrs.number("beta");
  product = scaled(b, product, node.attrs.number("alpha"));
  if (beta == 0) return product;  // PyTorch does not look at self then, not even for NaN
  return b.add("add", {scaled(b, node.operands[0], beta), product});
}

TensorType sum_type(const TensorType& self, TensorType product) {
  check(self.dtype == product.dtype, ErrorKind::type,
        "matrix product: cannot add a product of type {} to {}", name_of(product.dtype),
        name_of(self.dtype));
  check(broadcast(self.shape, product.shape) == product.shape,
        "matrix product: a tensor of shape {} does not broadcast to the product's shape {}",
        to_string(self.shape), to_string(product.shape));
  return product;
}

template <size_t rank>
std::vector<TensorType> infer_addmm(const OpView& op) {
  check_partials(op);
  return {sum_type(op.type(0), product_type(op.type(1), op.type(2), rank))};
}

Cost cost_of_addmm(const OpView& op, std::span<const TensorType> results) {
  return product_cost(op.shape(1), op.shape(2), results[0].dtype);
}

std::vector<ValueId> decompose_addmm(Builder& b, const Node& node) {
  if (node.attrs.number("alpha") == 0) {  // PyTorch does not look at the factors, not even for NaN
    Shape shape = b.shape(node.operands[1]);
    shape.back() = b.shape(node.operands[2]).back();
    const ValueId zero = b.scalar(0, b.type(node.operands[1]).dtype);
    return {scale_and_add(b, node, b.expand(zero, shape))};
  }
  const ValueId product =
      b.add("matmul", {node.operands[1], node.operands[2]}, partials_of_part(node.attrs));
  return {scale_and_add(b, node, product)};
}

// ---- Sums of a batch of products, and outer products

std::vector<TensorType> infer_addbmm(const OpView& op) {
  check_partials(op);
  TensorType product = product_type(op.type(1), op.type(2), 3);
  product.shape.erase(product.shape.begin());
  return {sum_type(op.type(0), product)};
}

// The batch is part of the depth: one product of wide matrices.
std::vector<ValueId> decompose_addbmm(Builder& b, const Node& node) {
  const Shape left = b.shape(node.operands[1]);
  const Shape right = b.shape(node.operands[2]);
  const Ints order{1, 0, 2};
  const ValueId wide = b.add("copy", {b.permute(node.operands[1], order)});
  const int64_t depth = left[0] * left[2];
  const ValueId product = b.add(
      "matmul", {b.reshape(wide, {left[1], depth}), b.reshape(node.operands[2], {depth, right[2]})},
      partials_of_part(node.attrs));
  return {scale_and_add(b, node, product)};
}

std::vector<TensorType> infer_addr(const OpView& op) {
  check(op.shape(1).size() == 1 && op.shape(2).size() == 1,
        "addr: wanted two vectors, got shapes {} and {}", to_string(op.shape(1)),
        to_string(op.shape(2)));
  return {sum_type(op.type(0), {op.type(1).dtype, {op.shape(1)[0], op.shape(2)[0]}})};
}

Cost cost_of_addr(const OpView&, std::span<const TensorType> results) {
  return ElementwiseCost{numel(results[0].shape), 2};
}

// ---- Products with vectors

Shape column(const Shape& vector) { return {vector[0], 1}; }

TensorType matrix_vector_type(const TensorType& matrix, const TensorType& vector) {
  check(vector.shape.size() == 1, "matrix product: wanted a vector, got {}", to_string(vector));
  TensorType type = product_type(matrix, {vector.dtype, column(vector.shape)}, 2);
  type.shape.pop_back();
  return type;
}

ValueId multiply_vector(Builder& b, const Node& node, ValueId matrix, ValueId vector) {
  const ValueId product = b.add("matmul", {matrix, b.reshape(vector, column(b.shape(vector)))},
                                partials_of_part(node.attrs));
  return b.reshape(product, {b.shape(product)[0]});
}

std::vector<TensorType> infer_mv(const OpView& op) {
  check_partials(op);
  return {matrix_vector_type(op.type(0), op.type(1))};
}

Cost cost_of_mv(const OpView& op, std::span<const TensorType> results) {
  return product_cost(op.shape(0), column(op.shape(1)), results[0].dtype);
}

std::vector<ValueId> decompose_mv(Builder& b, const Node& node) {
  return {multiply_vector(b, node, node.operands[0], node.operands[1])};
}

std::vector<TensorType> infer_addmv(const OpView& op) {
  check_partials(op);
  return {sum_type(op.type(0), matrix_vector_type(op.type(1), op.type(2)))};
}

Cost cost_of_addmv(const OpView& op, std::span<const TensorType> results) {
  return product_cost(op.shape(1), column(op.shape(2)), results[0].dtype);
}

std::vector<ValueId> decompose_addmv(Builder& b, const Node& node) {
  return {scale_and_add(b, node, multiply_vector(b, node, node.operands[1], node.operands[2]))};
}

std::vector<ValueId> decompose_addr(Builder& b, const Node& node) {
  const ValueId rows = b.reshape(node.operands[1], column(b.shape(node.operands[1])));
  return {scale_and_add(b, node, b.add("mul", {rows, node.operands[2]}))};
}

std::vector<TensorType> infer_dot(const OpView& op) {
  check_partials(op);
  check(op.shape(0).size() == 1 && op.shape(0) == op.shape(1),
        "dot: wanted two vectors of equal length, got {} and {}", to_string(op.type(0)),
        to_string(op.type(1)));
  check(op.type(0).dtype == op.type(1).dtype, ErrorKind::type, "dot: the types {} and {} differ",
        name_of(op.type(0).dtype), name_of(op.type(1).dtype));
  return {{op.type(0).dtype, {}}};
}

Cost cost_of_dot(const OpView& op, std::span<const TensorType> results) {
  return product_cost({1, op.shape(0)[0]}, column(op.shape(0)), results[0].dtype);
}

std::vector<ValueId> decompose_dot(Builder& b, const Node& node) {
  const ValueId row = b.reshape(node.operands[0], {1, b.shape(node.operands[0])[0]});
  const ValueId col = b.reshape(node.operands[1], column(b.shape(node.operands[1])));
  return {b.reshape(b.add("matmul", {row, col}, partials_of_part(node.attrs)), {})};
}

std::vector<OpDef> make_rows() {
  const AttrSchema scales = {number("beta", 1), number("alpha", 1)};
  const AttrSchema product_scales = joined(scales, partials_schema());
  const Attrs sample_scales = {{"beta", 0.5}, {"alpha", -2.0}};
  return {
      {.name = "matmul",
       .operands = "a, b",
       .results = "out",
       .doc = "The product of two matrices, or of each pair in two batches of matrices.",
       .kind = Kind::contraction,
       .attrs = partials_schema(),
       .aten = {{"mm", "self, mat2"}, {"bmm", "self, mat2"}},
       .infer = infer_matmul,
       .cost = cost_of_matmul,
       .cpu = run_matmul,
       .samples = {Sample{{reals({3, 4}), reals({4, 5})}},
                   Sample{{reals({2, 3, 4}), reals({2, 4, 5})}},
                   Sample{{reals({70, 300}), reals({300, 50})}},
                   Sample{{integers({3, 4}, {-9, 9}), integers({4, 2}, {-9, 9})}},
                   Sample{{reals({7, 40}), reals({40, 19})}, {{"partials", DType::f16}}},
                   Sample{{reals({2, 3, 1100}), reals({2, 1100, 5})},
                          {{"partials", DType::f16}, {"rounding_key", attr(3)}}}}},
      {.name = "addmm",
       .operands = "self, mat1, mat2",
       .results = "out",
       .doc = "beta * self + alpha * (mat1 mat2).",
       .kind = Kind::composite,
       .attrs = product_scales,
       .aten = {{"addmm", "self, mat1, mat2 | beta, alpha"}},
       .infer = infer_addmm<2>,
       .cost = cost_of_addmm,
       .decompose = decompose_addmm,
       .samples = {Sample{{reals({5}), reals({3, 4}), reals({4, 5})}},
                   Sample{{reals({3, 5}), reals({3, 4}), reals({4, 5})}, sample_scales}}},
      {.name = "baddbmm",
       .operands = "self, batch1, batch2",
       .results = "out",
       .doc = "beta * self + alpha * (batch1 batch2), matrix by matrix.",
       .kind = Kind::composite,
       .attrs = product_scales,
       .aten = {{"baddbmm", "self, batch1, batch2 | beta, alpha"}},
       .infer = infer_addmm<3>,
       .cost = cost_of_addmm,
       .decompose = decompose_addmm,
       .samples = {Sample{{reals({2, 1, 5}), reals({2, 3, 4}), reals({2, 4, 5})}},
                   Sample{{reals({2, 3, 5}), reals({2, 3, 4}), reals({2, 4, 5})}, sample_scales}}},
      {.name = "addbmm",
       .operands = "self, batch1, batch2",
       .results = "out",
       .doc = "beta * self + alpha * the sum of the products of pairs of matrices.",
       .kind = Kind::composite,
       .attrs = product_scales,
       .aten = {{"addbmm", "self, batch1, batch2 | beta, alpha"}},
       .infer = infer_addbmm,
       .cost = cost_of_addmm,
       .decompose = decompose_addbmm,
       .samples = {Sample{{reals({5}), reals({2, 3, 4}), reals({2, 4, 5})}},
                   Sample{{reals({3, 5}), reals({2, 3, 4}), reals({2, 4, 5})}, sample_scales}}},
      {.name = "addr",
       .operands = "self, vec1, vec2",
       .results = "out",
       .doc = "beta * self + alpha * the products of all pairs of two vectors' elements.",
       .kind = Kind::composite,
       .attrs = scales,
       .aten = {{"addr", "self, vec1, vec2 | beta, alpha"}},
       .traits = {.promotion = Promotion::common},
       .infer = infer_addr,
       .cost = cost_of_addr,
       .decompose = decompose_addr,
       .samples = {Sample{{reals({4}), reals({3}), reals({4})}},
                   Sample{{reals({3, 4}), reals({3}), reals({4})}, sample_scales}}},
      {.name = "mv",
       .operands = "self, vec",
       .results = "out",
       .doc = "A matrix times a vector.",
       .kind = Kind::composite,
       .attrs = partials_schema(),
       .aten = {{"mv", "self, vec"}},
       .infer = infer_mv,
       .cost = cost_of_mv,
       .decompose = decompose_mv,
       .samples = {Sample{{reals({3, 4}), reals({4})}}}},
      {.name = "addmv",
       .operands = "self, mat, vec",
       .results = "out",
       .doc = "beta * self + alpha * (mat vec).",
       .kind = Kind::composite,
       .attrs = product_scales,
       .aten = {{"addmv", "self, mat, vec | beta, alpha"}},
       .infer = infer_addmv,
       .cost = cost_of_addmv,
       .decompose = decompose_addmv,
       .samples = {Sample{{reals({3}), reals({3, 4}), reals({4})}},
                   Sample{{reals({3}), reals({3, 4}), reals({4})}, sample_scales}}},
      {.name = "dot",
       .operands = "self, tensor",
       .results = "out",
       .doc = "The sum of the products of two vectors' elements.",
       .kind = Kind::composite,
       .attrs = partials_schema(),
       .aten = {{"dot", "self, tensor"}, {"vdot", "self, other"}},
       .infer = infer_dot,
       .cost = cost_of_dot,
       .decompose = decompose_dot,
       .samples = {Sample{{reals({6}), reals({6})}}}},
  };
}

}  // namespace

std::span<const OpDef> families::matmul() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
