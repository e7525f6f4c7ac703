#include "tessera/ops/optimizer_parts.h"

#include "tessera/base/error.h"
#include "tessera/base/float_pair.h"

namespace tessera::optimizer_parts {

std::vector<TensorType> infer_update(const OpView& op, size_t numbers) {
  const auto check_element = [&](size_t i) {
    const DType dtype = op.type(i).dtype;
    check(dtype == DType::f32 || dtype == DType::f16, ErrorKind::type,
          "{} of an update must be f16 or f32, not {}",
          i == param ? "the parameter" : fmt::format("operand {}", i), name_of(dtype));
  };
  check_element(param);
  const Shape& shape = op.shape(param);
  std::vector<TensorType> results = {op.type(param)};
  for (size_t i = grad; i < numbers; ++i) {
    if (!op.has(i)) continue;
    const TensorType wanted =
        i == step ? TensorType{DType::f32, {}} : TensorType{op.type(i).dtype, shape};
    check_element(i);
    check(op.type(i) == wanted, ErrorKind::value, "operand {} of an update must be {}, not {}", i,
          to_string(wanted), to_string(op.type(i)));
    if (i != grad) results.push_back(wanted);
  }
  for (size_t i = numbers; i < op.count(); ++i) {
    check(op.type(i) == TensorType{DType::f32, {2}}, ErrorKind::type,
          "a number of an optimiser must be f32[2], not {}", to_string(op.type(i)));
  }
  return results;
}

Traits update_traits(size_t numbers) {
  Traits traits{.in_place = {{0, param}}};
  for (size_t i = step; i < numbers; ++i) traits.in_place.emplace_back(i - 1, i);
  return traits;
}

double number(const KernelCall& call, size_t operand) {
  const TensorView& view = call.inputs[operand];
  FloatPair pair;
  pair.high = view.as<float>()[0];
  pair.low = view.as<float>()[view.strides[0]];
  return pair.sum();
}

float updates_so_far(const KernelCall& call) {
  return call.has_input(step) ? *call.inputs[step].as<float>() : 0;
}

void count_update(const KernelCall& call) {
  *call.outputs[1].as<float>() = updates_so_far(call) + 1;
}

Sample update_sample(const Shape& shape, size_t numbers, size_t count, size_t memories,
                     double steps) {
  using namespace row_parts;
  Sample sample{std::vector(count, reals({2}, {0.01, 0.5}))};
  sample.operands[param] = sample.operands[grad] = reals(shape);
  sample.operands[step] = reals({}, {steps, steps});
  for (size_t i = memory; i < numbers; ++i) {
    sample.operands[i] = i < memory + memories ? reals(shape, {0.5, 2}) : left_out();
  }
  return sample;
}

}  // namespace tessera::optimizer_parts
