#include "tessera/ops/fused_body.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/forms.h"
#include "tessera/ops/partials.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

TensorType type_of(const BodyValue& value, std::span<const TensorType> operands,
                   const FusedBody& body, const Shape& shape) {
  switch (value.from) {
    case BodyValue::From::operand:
      check(value.index < operands.size(), ErrorKind::value,
            "a fused body uses a{}, but there are {} operands", value.index, operands.size());
      return operands[value.index];
    case BodyValue::From::step:
      return {body.steps[value.index].dtype, shape};
    case BodyValue::From::number:
      return {value.dtype, {}};
  }
  TESSERA_UNREACHABLE("a value of a body from nowhere");
}

void check_step(const FusedBody& body, const BodyStep& step, std::span<const TensorType> operands,
                const Shape& shape) {
  std::vector<std::optional<TensorType>> arguments;
  for (const BodyValue& value : step.arguments) {
    arguments.emplace_back(type_of(value, operands, body, shape));
  }
  const auto is_half = [](const std::optional<TensorType>& type) {
    return type->dtype == DType::f16;
  };
  check(is_conversion(step.op) ||
            (step.dtype != DType::f16 && std::none_of(arguments.begin(), arguments.end(), is_half)),
        ErrorKind::type, "a fused body: {} does not compute with f16; cast to f32 before it",
        step.op);
  const TensorType type = infer(row_of(step), arguments, step.attrs).at(0);
  check(type.shape == shape, ErrorKind::value,
        "a fused body: a step of shape {} where all operands together have {}",
        to_string(type.shape), to_string(shape));
  check(narrowed(type.dtype) == step.dtype, ErrorKind::type,
        "a fused body: {} gives {} here, not {}; write its type behind the step", step.op,
        name_of(narrowed(type.dtype)), name_of(step.dtype));
}

}  // namespace

bool can_be_step(const OpDef& row) {
  if (row.kind != Kind::elementwise || !row.cpu) return false;
  if (row.traits.runs_alone) return false;
  if (row.results.find_first_of(",*") != std::string::npos) return false;
  const auto specs = operand_specs(row);
  return std::none_of(specs.begin(), specs.end(),
                      [](const OperandSpec& spec) { return spec.list || spec.optional; });
}

bool reads_random_state(const OpDef& row, const Attrs& attrs) {
  if (row.traits.reads_random_state || rounds_partials_by_chance(attrs)) return true;
  const auto body = std::find_if(row.attrs.begin(), row.attrs.end(),
                                 [](const AttrSpec& spec) { return spec.type == AttrType::body; });
  if (body == row.attrs.end()) return false;
  const auto& steps = attrs.body(body->name).steps;
  return std::any_of(steps.begin(), steps.end(),
                     [](const BodyStep& step) { return row_of(step).traits.reads_random_state; });
}

FusedBody completed(FusedBody body) {
  for (BodyStep& step : body.steps) {
    const OpDef* row = find_op(step.op);
    check(row, ErrorKind::value, "a fused body: there is no operator '{}'", step.op);
    check(can_be_step(*row), ErrorKind::value,
          "a fused body: {} is not an element-wise operator of one result", step.op);
    const size_t wanted = operand_specs(*row).size();
    check(step.arguments.size() == wanted, ErrorKind::value,
          "a fused body: {} takes {} arguments, got {}", step.op, wanted, step.arguments.size());
    step.attrs = completed(*row, std::move(step.attrs));
  }
  return body;
}

const OpDef& row_of(const BodyStep& step) { return op(step.op); }

std::vector<DType> argument_types(const FusedBody& body, const BodyStep& step,
                                  std::span<const DType> operands) {
  std::vector<DType> types;
  for (const BodyValue& value : step.arguments) {
    switch (value.from) {
      case BodyValue::From::operand:
        types.push_back(operands[value.index]);
        break;
      case BodyValue::From::step:
        types.push_back(body.steps[value.index].dtype);
        break;
      case BodyValue::From::number:
        types.push_back(value.dtype);
        break;
    }
  }
  return types;
}

std::vector<TensorType> result_types(const FusedBody& body, std::span<const TensorType> operands) {
  Shape shape;
  for (const TensorType& operand : operands) shape = broadcast(shape, operand.shape);
  for (const BodyStep& step : body.steps) check_step(body, step, operands, shape);
  std::vector<TensorType> types;
  for (const BodyResult& result : body.results) {
    TensorType type = type_of(result.value, operands, body, shape);
    if (result.summed) {
      check(type.dtype != DType::f16, ErrorKind::type,
            "a fused body does not add up f16; cast to f32 before it");
      for (const int64_t dim : result.dims) {
        check(dim < static_cast<int64_t>(shape.size()), ErrorKind::value,
              "a fused body sums over dimension {} of shape {}", dim, to_string(shape));
      }
      type.shape = shape;  // a smaller operand is summed as often as it is repeated
      const std::optional<TensorType> operand = type;
      type = infer(sum_row(), {&operand, 1}, sum_attributes(result)).at(0);
      type.dtype = narrowed(type.dtype);
    }
    types.push_back(std::move(type));
  }
  return types;
}

double flops_per_element(const BodyStep& step) {
  const std::vector<TensorType> scalar(1);
  const std::vector<std::optional<TensorType>> scalars(step.arguments.size(), scalar[0]);
  return work(row_of(step).cost(OpView(scalars, step.attrs), scalar));
}

const OpDef& sum_row() { return op("sum"); }

Attrs sum_attributes(const BodyResult& result) {
  return completed(sum_row(), {{"dim", result.dims}, {"keepdim", result.keepdim}});
}

}  // namespace tessera
