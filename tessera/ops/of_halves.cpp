#include "tessera/ops/of_halves.h"

#include <algorithm>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/base/scratch.h"
#include "tessera/base/stochastic_rounding.h"
#include "tessera/ops/families.h"
#include "tessera/ops/optimizer_parts.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/row_parts.h"
#include "tessera/ops/run_widened.h"

namespace tessera {
namespace {

constexpr std::string_view suffix = "_of_halves";

using Types = std::vector<std::optional<TensorType>>;

Types single_operands(const OpView& op) {
  Types types(op.count());
  for (size_t i = 0; i < types.size(); ++i) {
    if (op.has(i)) types[i] = in_single(op.type(i));
  }
  return types;
}

std::vector<Sample> samples_of(const OpDef& base) {
  std::vector<Sample> samples;
  for (const Sample& sample : base.samples) {
    if (sample.operands[0].type.dtype == DType::f32) samples.push_back(sample_of_halves(sample));
  }
  return samples;
}

template <const OpDef& (*base)()>
size_t operand_count() {
  static const size_t count = operand_specs(base()).size();
  return count;
}

// Rounds by chance what the update makes.
void run_rounded(const OpDef& base, const KernelCall& call) {
  const auto& keys = call.attrs.integers("keys");
  if (keys.empty()) return run_widened(base, call);
  ScratchVector<ScratchVector<float>> memory;
  ScratchVector<TensorView> outputs(call.outputs.begin(), call.outputs.end());
  memory.reserve(outputs.size());
  for (TensorView& output : outputs) {
    if (output.dtype != DType::f16) continue;
    memory.emplace_back(static_cast<size_t>(output.numel()));
    output.data = reinterpret_cast<std::byte*>(memory.back().data());
    output.dtype = DType::f32;
  }
  KernelCall in_f32 = call;
  in_f32.outputs = outputs;
  run_widened(base, in_f32);
  size_t rounded = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (call.outputs[i].dtype != DType::f16) continue;
    const auto stream = rounding_stream(call.rng, static_cast<uint64_t>(keys[rounded++]));
    const auto* from = outputs[i].as<float>();
    auto* to = call.outputs[i].as<Half>();
    call.pool.run_ranges(outputs[i].numel(), elementwise_grain, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        to[k] = to_half(from[k], rounding_word(stream, static_cast<uint32_t>(k)));
      }
    });
  }
}

// The gradient is scaled before; `own` operands are the base's.
void run_update(const OpDef& base, size_t own, const KernelCall& call) {
  if (!call.has_input(own)) {
    KernelCall without = call;
    without.inputs = call.inputs.first(std::min(own, call.inputs.size()));
    return run_rounded(base, without);
  }
  ScratchVector<TensorView> inputs(call.inputs.begin(),
                                   call.inputs.begin() + static_cast<int64_t>(own));
  TensorView& grad = inputs[optimizer_parts::grad];
  const ScratchShape strides = scratch_strides(grad.sizes);
  ScratchVector<float> memory(static_cast<size_t>(grad.numel()));
  const TensorView scaled{reinterpret_cast<std::byte*>(memory.data()), DType::f32, grad.sizes,
                          strides};
  const TensorView factors[] = {grad, call.inputs[own]};
  static const Attrs none;
  run_widened(op("mul"), {factors, {&scaled, 1}, none, call.pool, call.rng});
  grad = scaled;
  KernelCall without = call;
  without.inputs = inputs;
  run_rounded(base, without);
}

const OpDef& matmul_row() { return families::row_of(families::matmul(), "matmul"); }
const OpDef& conv_row() { return families::row_of(families::conv(), "conv"); }
const OpDef& input_grad_row() { return families::row_of(families::conv(), "conv_input_grad"); }
const OpDef& weight_grad_row() { return families::row_of(families::conv(), "conv_weight_grad"); }
const OpDef& moments_row() { return families::row_of(families::reduce(), "moments"); }
const OpDef& sgd_row() { return families::row_of(families::optimizer(), "sgd"); }
const OpDef& adam_row() { return families::row_of(families::optimizer(), "adam"); }
const OpDef& rmsprop_row() { return families::row_of(families::optimizer(), "rmsprop"); }

template <const OpDef& (*base)()>
OpDef row_on_halves() {
  OpDef row = base();
  row.name += suffix;
  row.doc += " Operands may be halves.";
  row.aten = {};
  row.decompose = nullptr;
  row.infer = [](const OpView& op) {
    const Types types = single_operands(op);
    return base().infer(OpView(types, op.attrs()));
  };
  row.cost = [](const OpView& op, std::span<const TensorType> results) {
    const Types types = single_operands(op);
    return base().cost(OpView(types, op.attrs()), results);
  };
  row.cpu = [](const KernelCall& call) { run_widened(base(), call); };
  row.samples = samples_of(base());
  return row;
}

// The rule of an update knows halves itself.
template <const OpDef& (*base)()>
OpDef update_on_halves() {
  OpDef row = base();
  row.name += suffix;
  row.operands += ", grad_scale?";
  row.doc += "; of halves, by chance where there are keys for them";
  row.attrs.push_back(row_parts::large(row_parts::ints("keys", {})));
  row.aten = {};
  row.infer = [](const OpView& op) {
    const size_t own = operand_count<base>();
    Types types(std::min(own, op.count()));
    for (size_t i = 0; i < types.size(); ++i) {
      if (op.has(i)) types[i] = op.type(i);
    }
    check(!op.has(own) || op.type(own) == TensorType{DType::f32, {}}, ErrorKind::type,
          "a gradient is scaled by an f32[], not by {}",
          op.has(own) ? to_string(op.type(own)) : "");
    auto results = base().infer(OpView(types, op.attrs()));
    const auto halves = std::count_if(results.begin(), results.end(), [](const TensorType& type) {
      return type.dtype == DType::f16;
    });
    const auto keys = op.attrs().integers("keys").size();
    check(keys == 0 || keys == static_cast<size_t>(halves), ErrorKind::value,
          "an update with {} results of halves has {} keys", halves, keys);
    return results;
  };
  row.cost = [](const OpView& op, std::span<const TensorType> results) {
    return base().cost(op, results);
  };
  row.cpu = [](const KernelCall& call) { run_update(base(), operand_count<base>(), call); };
  row.samples.clear();
  for (const Sample& sample : base().samples) {
    Sample& halves = row.samples.emplace_back(sample);
    size_t results = 0;
    for (size_t i = 0; i < halves.operands.size(); ++i) {
      SampleOperand& operand = halves.operands[i];
      if (!operand.present || i == optimizer_parts::step ||
          operand.type.shape != halves.operands[0].type.shape || operand.type.shape.empty()) {
        continue;
      }
      operand.type.dtype = DType::f16;
      results += i == optimizer_parts::grad ? 0 : 1;
    }
    halves.operands.resize(operand_count<base>(), row_parts::left_out());
    if (row.samples.size() % 3 != 0) halves.operands.push_back(row_parts::reals({}, {0.1, 2}));
    if (row.samples.size() % 2 == 0) continue;
    Shape keys(results);
    std::iota(keys.begin(), keys.end(), 3);
    halves.attrs.set("keys", std::move(keys));
  }
  return row;
}

}  // namespace

const OpDef* row_of_halves(const OpDef& row) { return find_op(row.name + std::string(suffix)); }

const OpDef* row_in_single(const OpDef& of_halves) {
  const std::string_view name = of_halves.name;
  if (!name.ends_with(suffix)) return nullptr;
  return find_op(name.substr(0, name.size() - suffix.size()));
}

std::optional<TensorType> in_single(std::optional<TensorType> type) {
  if (type && type->dtype == DType::f16) type->dtype = DType::f32;
  return type;
}

Sample sample_of_halves(Sample sample) {
  for (SampleOperand& operand : sample.operands) {
    if (operand.type.dtype == DType::f32) operand.type.dtype = DType::f16;
  }
  return sample;
}

std::span<const OpDef> families::of_halves() {
  static const std::vector<OpDef> rows = {
      row_on_halves<matmul_row>(),     row_on_halves<conv_row>(),
      row_on_halves<input_grad_row>(), row_on_halves<weight_grad_row>(),
      row_on_halves<moments_row>(),    update_on_halves<sgd_row>(),
      update_on_halves<adam_row>(),    update_on_halves<rmsprop_row>()};
  return rows;
}

}  // namespace tessera
