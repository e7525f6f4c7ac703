// Products of tensors that are no plain matrix product: of three tensors, and of vectors in space.
#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/families.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

// ---- _trilinear: the sum over some dimensions of the product of three broadcast tensors

bool contains(const Ints& list, size_t dim) {
  return std::find(list.begin(), list.end(), static_cast<int64_t>(dim)) != list.end();
}

// A shape with dimensions of size 1 put in at the places named.
Shape with_ones(const Shape& shape, const Ints& places) {
  Shape out;
  const size_t rank = shape.size() + places.size();
  for (size_t d = 0, next = 0; d < rank; ++d) {
    out.push_back(contains(places, d) || next == shape.size() ? 1 : shape[next++]);
  }
  return out;
}

Shape trilinear_space(const OpView& op) {
  Shape space;
  for (size_t i = 0; i < 3; ++i) {
    const Ints& places = op.attrs().integers("expand" + std::to_string(i + 1));
    check(op.shape(i).size() + places.size() ==
              op.shape(0).size() + op.attrs().integers("expand1").size(),
          "trilinear: tensor {} of shape {} does not fit the others", i + 1,
          to_string(op.shape(i)));
    space = broadcast(space, with_ones(op.shape(i), places));
  }
  return space;
}

Shape without(const Shape& shape, const Ints& dims) {
  Shape out;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!contains(dims, d)) out.push_back(shape[d]);
  }
  return out;
}

std::vector<TensorType> infer_trilinear(const OpView& op) {
  const DType dtype = op.type(0).dtype;
  check(op.type(1).dtype == dtype && op.type(2).dtype == dtype, ErrorKind::type,
        "trilinear: the types {}, {} and {} differ", name_of(dtype), name_of(op.type(1).dtype),
        name_of(op.type(2).dtype));
  check(dtype != DType::boolean, ErrorKind::type, "trilinear: cannot multiply bools; cast them");
  const Shape space = trilinear_space(op);
  for (const char* name : {"expand1", "expand2", "expand3", "sumdim"}) {
    for (const int64_t dim : op.attrs().integers(name)) {
      check(dim >= 0 && dim < static_cast<int64_t>(space.size()), ErrorKind::value,
            "trilinear: {} has dimension {}, there are {}", name, dim, space.size());
    }
  }
  return {{dtype, without(space, op.attrs().integers("sumdim"))}};
}

Cost cost_of_trilinear(const OpView& op, std::span<const TensorType>) {
  return ElementwiseCost{numel(trilinear_space(op)), 2};
}

// The sum over `summed` of the product of two tensors of equal rank, in which either may have size
// 1 where the other has not; summed dimensions are left as size 1. One batched matrix product.
ValueId contract(Builder& b, ValueId x, ValueId y, const Ints& summed) {
  const Shape left = b.shape(x);
  const Shape right = b.shape(y);
  Ints batch, rows, cols, depth;
  Shape out;
  for (size_t d = 0; d < left.size(); ++d) {
    const bool sums = contains(summed, d);
    const auto dim = static_cast<int64_t>(d);
    out.push_back(sums ? 1 : std::max(left[d], right[d]));
    if (sums) {
      depth.push_back(dim);
    } else if (left[d] == right[d]) {
      batch.push_back(dim);
    } else {
      (left[d] != 1 ? rows : cols).push_back(dim);
    }
  }
  // A dimension to sum that only one side has is summed by a row of ones on the other.
  Shape left_full = left;
  Shape right_full = right;
  for (const int64_t dim : depth) {
    const auto d = static_cast<size_t>(dim);
    left_full[d] = right_full[d] = std::max(left[d], right[d]);
  }
  const auto size = [](const Shape& shape, const Ints& dims) {
    int64_t product = 1;
    for (const int64_t dim : dims) product *= shape[static_cast<size_t>(dim)];
    return product;
  };
  const auto joined_dims = [&](const Ints& first, const Ints& second, const Ints& third) {
    Ints dims = batch;
    for (const Ints& list : {first, second, third})
      dims.insert(dims.end(), list.begin(), list.end());
    return dims;
  };
  const auto matrices = [&](ValueId value, const Shape& full, const Ints& first, const Ints& second,
                            const Ints& single) {
    const Ints order = joined_dims(first, second, single);
    const ValueId moved = b.add("copy", {b.permute(b.expand(value, full), order)});
    return b.reshape(moved, {size(full, batch), size(full, first), size(full, second)});
  };
  const ValueId a = matrices(x, left_full, rows, depth, cols);
  const ValueId c = matrices(y, right_full, depth, cols, rows);
  const ValueId product = b.add("matmul", {a, c});

  // Back to the order of dimensions.
  const Ints made = joined_dims(rows, cols, depth);
  Shape made_shape;
  Ints back(made.size());
  for (size_t i = 0; i < made.size(); ++i) {
    made_shape.push_back(out[static_cast<size_t>(made[i])]);
    back[static_cast<size_t>(made[i])] = static_cast<int64_t>(i);
  }
  return b.add("copy", {b.permute(b.reshape(product, made_shape), back)});
}

std::vector<ValueId> decompose_trilinear(Builder& b, const Node& node) {
  std::vector<ValueId> parts;
  for (size_t i = 0; i < 3; ++i) {
    const Ints& places = node.attrs.integers("expand" + std::to_string(i + 1));
    parts.push_back(b.reshape(node.operands[i], with_ones(b.shape(node.operands[i]), places)));
  }
  const Shape space = broadcast(broadcast(b.shape(parts[0]), b.shape(parts[1])), b.shape(parts[2]));
  if (numel(space) == 0) {  // sums of nothing
    return {b.add("fill", {},
                  {{"shape", without(space, node.attrs.integers("sumdim"))},
                   {"value", 0.0},
                   {"dtype", b.type(parts[0]).dtype}})};
  }
  // What the third tensor does not have is summed with the first two: nothing large is made.
  Ints early, late;
  for (const int64_t dim : node.attrs.integers("sumdim")) {
    const bool third_has = b.shape(parts[2])[static_cast<size_t>(dim)] != 1;
    (third_has ? late : early).push_back(dim);
  }
  const ValueId pair = contract(b, parts[0], parts[1], early);
  const ValueId all = contract(b, pair, parts[2], late);
  return {b.reshape(all, without(b.shape(all), node.attrs.integers("sumdim")))};
}

// ---- The vector product

std::vector<TensorType> infer_cross(const OpView& op) {
  const Shape shape = broadcast(op.shape(0), op.shape(1));
  const auto rank = static_cast<int64_t>(shape.size());
  const auto dim = static_cast<size_t>(wrap_dim(op.attrs().integer("dim"), rank));
  check(rank > 0 && shape[dim] == 3, "cross: dimension {} must have size 3, got shape {}", dim,
        to_string(shape));
  check(op.type(0).dtype == op.type(1).dtype, ErrorKind::type, "cross: the types {} and {} differ",
        name_of(op.type(0).dtype), name_of(op.type(1).dtype));
  return {{op.type(0).dtype, shape}};
}

Cost cost_of_cross(const OpView&, std::span<const TensorType> results) {
  return ElementwiseCost{numel(results[0].shape), 3};
}

std::vector<ValueId> decompose_cross(Builder& b, const Node& node) {
  const Shape shape = broadcast(b.shape(node.operands[0]), b.shape(node.operands[1]));
  const Ints dims{node.attrs.integer("dim")};
  const auto rolled = [&](size_t operand, int64_t by) {
    return b.add("roll", {b.expand(node.operands[operand], shape)},
                 {{"shifts", Ints{-by}}, {"dims", dims}});
  };
  const ValueId first = b.add("mul", {rolled(0, 1), rolled(1, 2)});
  return {b.add("sub", {first, b.add("mul", {rolled(0, 2), rolled(1, 1)})})};
}

std::vector<OpDef> make_rows() {
  const Attrs bilinear = {{"expand1", Ints{1, 3}},
                          {"expand2", Ints{0}},
                          {"expand3", Ints{1, 2}},
                          {"sumdim", Ints{2, 3}}};
  const Attrs all_at_once = {
      {"expand1", Ints{}}, {"expand2", Ints{}}, {"expand3", Ints{}}, {"sumdim", Ints{1}}};
  return {
      {.name = "trilinear",
       .operands = "i1, i2, i3",
       .results = "out",
       .doc = "The sum over dimensions of the product of three tensors, which are given dimensions "
              "of size 1 first.",
       .kind = Kind::composite,
       .attrs = {ints("expand1"), ints("expand2"), ints("expand3"), ints("sumdim")},
       .aten = {{"_trilinear", "i1, i2, i3 | expand1, expand2, expand3, sumdim"}},
       .infer = infer_trilinear,
       .cost = cost_of_trilinear,
       .decompose = decompose_trilinear,
       .samples = {Sample{{reals({5, 3}), reals({2, 3, 4}), reals({5, 4})}, bilinear},
                   Sample{{reals({3, 4}), reals({3, 4}), reals({3, 4})}, all_at_once}}},
      {.name = "cross",
       .operands = "self, other",
       .results = "out",
       .doc = "The vector product along a dimension of size 3.",
       .kind = Kind::composite,
       .attrs = {integer("dim", -1)},
       .aten = {{"linalg_cross", "self, other | dim"}},
       .traits = {.promotion = Promotion::common},
       .infer = infer_cross,
       .cost = cost_of_cross,
       .decompose = decompose_cross,
       .samples = {Sample{{reals({4, 3}), reals({4, 3})}},
                   Sample{{reals({2, 3, 4}), reals({1, 3, 4})}, {{"dim", attr(1)}}}}},
  };
}

}  // namespace

std::span<const OpDef> families::tensor_product() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
