#include "tessera/ops/update_of_product.h"

#include "tessera/base/error.h"
#include "tessera/base/scratch.h"
#include "tessera/ops/registry.h"

namespace tessera::optimizer_parts {
namespace {

constexpr std::string_view suffix = "_of_product";

using Types = std::vector<std::optional<TensorType>>;

Types factors_of(const OpView& op) { return {op.type(grad), op.type(op.count() - 1)}; }

TensorType product_type(const OpView& op) {
  for (const auto& factor : factors_of(op)) {
    check(factor->shape.size() == 2, ErrorKind::value,
          "the gradient of an update must be a product of two matrices, a factor is {}",
          to_string(*factor));
  }
  return tessera::op("matmul").infer(OpView(factors_of(op), op.attrs()))[0];
}

// As the row itself sees them.
Types base_operands(const OpView& op) {
  Types types;
  for (size_t i = 0; i + 1 < op.count(); ++i)
    types.push_back(op.has(i) ? std::optional(op.type(i)) : std::nullopt);
  types[grad] = product_type(op);
  return types;
}

}  // namespace

const OpDef* update_of_product(const OpDef& row) { return find_op(row.name + std::string(suffix)); }

OpDef product_row(const OpDef& base) {
  OpDef row = base;
  row.name += suffix;
  row.operands += ", second_factor";
  row.doc += "; the gradient is the matrix product of grad and second_factor";
  row.kind = Kind::contraction;
  row.samples.clear();
  for (const Sample& sample : base.samples) {
    const Shape shape = sample.operands[param].type.shape;
    if (shape.size() != 2) continue;
    Sample& one = row.samples.emplace_back(sample);
    one.operands[grad] = row_parts::reals({shape[0], 4});
    one.operands.push_back(row_parts::reals({4, shape[1]}));
  }
  return row;
}

std::vector<TensorType> infer_of_product(const OpDef& base, const OpView& op) {
  return base.infer(OpView(base_operands(op), op.attrs()));
}

Cost cost_of_product(const OpDef& base, const OpView& op, std::span<const TensorType> results) {
  const Types factors = factors_of(op);
  const Cost product = tessera::op("matmul").cost(OpView(factors, op.attrs()), results.first(1));
  const Types operands = base_operands(op);
  const double update = work(base.cost(OpView(operands, op.attrs()), results));
  auto cost = std::get<ContractionCost>(product);
  cost.multiply_adds += static_cast<int64_t>(update / 2);
  return cost;
}

void run_of_product(const OpDef& base, const KernelCall& call) {
  const TensorView& parameter = call.outputs[0];
  const ScratchShape strides = scratch_strides(parameter.sizes);
  ScratchVector<float> memory(static_cast<size_t>(parameter.numel()));
  const TensorView product{reinterpret_cast<std::byte*>(memory.data()), DType::f32, parameter.sizes,
                           strides};
  const std::array factors = {call.inputs[grad], call.inputs.back()};
  op("matmul").cpu({factors, {&product, 1}, call.attrs, call.pool, call.rng});

  ScratchVector<TensorView> inputs(call.inputs.begin(), call.inputs.end() - 1);
  inputs[grad] = product;
  base.cpu({inputs, call.outputs, call.attrs, call.pool, call.rng});
}

}  // namespace tessera::optimizer_parts
