#include "tessera/ops/contraction_map.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/families.h"
#include "tessera/ops/fused_body.h"
#include "tessera/ops/of_halves.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/row_parts.h"
#include "tessera/ops/run_widened.h"

namespace tessera {
namespace {

constexpr std::string_view suffix = "_map";

using Types = std::vector<std::optional<TensorType>>;

Types contraction_operands(const OpDef& base, const OpView& op) {
  Types types(operand_count(base));
  for (size_t i = 0; i < types.size(); ++i) {
    if (op.has(i)) types[i] = in_single(op.type(i));
  }
  return types;
}

TensorType contraction_result(const OpDef& base, const OpView& op) {
  return infer(base, contraction_operands(base, op), op.attrs()).at(0);
}

std::vector<TensorType> infer_map(const OpDef& base, const OpView& op) {
  const FusedBody& body = op.attrs().body("body");
  check(std::none_of(body.results.begin(), body.results.end(),
                     [](const BodyResult& result) { return result.summed; }),
        ErrorKind::value, "{}{} has no sums", base.name, suffix);
  std::vector<TensorType> operands = {contraction_result(base, op)};
  for (size_t i = operand_count(base); i < op.count(); ++i) {
    check(op.has(i), ErrorKind::value, "a fused operator needs all of its operands");
    operands.push_back(op.type(i));
  }
  auto results = result_types(body, operands);
  check(!results.empty() && results[0].shape == operands[0].shape, ErrorKind::value,
        "{}{} must keep the shape of the contraction, {}", base.name, suffix,
        to_string(operands[0]));
  return results;
}

Cost cost_of_map(const OpDef& base, const OpView& op) {
  const TensorType result = contraction_result(base, op);
  const Types operands = contraction_operands(base, op);
  auto cost = std::get<ContractionCost>(base.cost(OpView(operands, op.attrs()), {&result, 1}));
  double flops = 0;
  for (const BodyStep& step : op.attrs().body("body").steps) {
    flops += flops_per_element(step);
  }
  cost.multiply_adds += static_cast<int64_t>(flops * static_cast<double>(numel(result.shape)) / 2);
  return cost;
}

void run_map(const OpDef& base, const KernelCall& call) {
  const size_t own = operand_count(base);
  Types types;
  for (size_t i = 0; i < own; ++i) {
    const TensorView& operand = call.inputs[i];
    types.push_back(
        call.has_input(i)
            ? in_single(TensorType{operand.dtype, {operand.sizes.begin(), operand.sizes.end()}})
            : std::nullopt);
  }
  const TensorType type = base.infer(OpView(types, call.attrs)).at(0);
  const Strides strides = contiguous_strides(type.shape);
  std::vector<std::byte> memory(static_cast<size_t>(bytes(type)));
  const TensorView result{memory.data(), type.dtype, type.shape, strides};
  run_widened(base, {call.inputs.first(own), {&result, 1}, call.attrs, call.pool, call.rng});

  std::vector<TensorView> operands = {result};
  operands.insert(operands.end(), call.inputs.begin() + static_cast<int64_t>(own),
                  call.inputs.end());
  op("map").cpu({operands, call.outputs, call.attrs, call.pool, call.rng});
}

// A number for each element of the last dimension, and one more for every element.
std::vector<Sample> samples_of(const OpDef& base) {
  std::vector<Sample> samples;
  for (const Sample& given : base.samples) {
    Types types;
    for (const SampleOperand& operand : given.operands) {
      types.push_back(operand.present ? std::optional(operand.type) : std::nullopt);
    }
    const TensorType result = infer(base, types, completed(base, given.attrs)).at(0);
    if (result.dtype != DType::f32) continue;
    Sample& sample = samples.emplace_back(given);
    sample.operands.push_back(row_parts::reals({result.shape.back()}));
    sample.operands.push_back(row_parts::reals(result.shape));
    sample.attrs.set("body", body_attr(parse_body("%0 = mul(a0, a1); %1 = add(%0, a2) {alpha = "
                                                  "0.5}; %2 = relu(%1); out %2")));
    Sample& halves = samples.emplace_back(sample_of_halves(given));
    halves.operands.push_back(row_parts::reals(result.shape));
    halves.attrs.set("body", body_attr(parse_body("%0 = add(a0, a1); %1 = cast(%0) {dtype = f16} "
                                                  ": f16; out %1")));
  }
  return samples;
}

const OpDef& matmul_row() { return families::row_of(families::matmul(), "matmul"); }
const OpDef& conv_row() { return families::row_of(families::conv(), "conv"); }
const OpDef& input_grad_row() { return families::row_of(families::conv(), "conv_input_grad"); }
const OpDef& weight_grad_row() { return families::row_of(families::conv(), "conv_weight_grad"); }

template <const OpDef& (*base)()>
OpDef map_row() {
  OpDef row = base();
  row.name += suffix;
  row.operands += ", operands*";
  row.results = "results*";
  row.doc += " Then element-wise operators one after the other, as `body` says.";
  row.attrs.push_back(row_parts::body("body"));
  row.aten = {};
  row.traits = {};
  row.decompose = nullptr;
  row.infer = [](const OpView& op) { return infer_map(base(), op); };
  row.cost = [](const OpView& op, std::span<const TensorType>) { return cost_of_map(base(), op); };
  row.cpu = [](const KernelCall& call) { run_map(base(), call); };
  row.samples = samples_of(base());
  return row;
}

}  // namespace

const OpDef* map_of_contraction(const OpDef& contraction) {
  const OpDef* single = row_in_single(contraction);
  return find_op((single ? *single : contraction).name + std::string(suffix));
}

const OpDef* contraction_of_map(const OpDef& row) {
  if (row.kind != Kind::contraction || !row.name.ends_with(suffix)) return nullptr;
  return find_op(std::string_view(row.name).substr(0, row.name.size() - suffix.size()));
}

size_t operand_count(const OpDef& contraction) { return operand_specs(contraction).size(); }

std::span<const OpDef> families::contraction_map() {
  static const std::vector<OpDef> rows = {map_row<matmul_row>(), map_row<conv_row>(),
                                          map_row<input_grad_row>(), map_row<weight_grad_row>()};
  return rows;
}

}  // namespace tessera
