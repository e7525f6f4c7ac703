// Steps of optimisers. Hyper-parameters are operands, so that changing them compiles nothing anew.
#include "tessera/kernels/elementwise.h"
#include "tessera/kernels/scalar_math.h"
#include "tessera/ops/families.h"
#include "tessera/ops/row_parts.h"

namespace tessera::families {
namespace {

using namespace row_parts;

namespace sgd {

enum Operand : size_t {
  param,
  grad,
  velocity,
  step,
  learning_rate,
  momentum,
  dampening,
  weight_decay,
  count
};

std::vector<TensorType> infer(const OpView& op) {
  const TensorType& type = op.type(param);
  check(is_floating(type.dtype), ErrorKind::type, "a parameter must be floating point, not {}",
        name_of(type.dtype));
  for (const size_t i : {grad, velocity}) {
    if (!op.has(i)) continue;
    check(op.shape(i) == type.shape, ErrorKind::value, "the parameter has shape {}, its {} {}",
          to_string(type.shape), i == grad ? "gradient" : "velocity", to_string(op.shape(i)));
  }
  check(op.has(velocity) == op.has(step), ErrorKind::value,
        "velocity and the count of steps go together");
  if (!op.has(velocity)) return {type};
  check(op.type(step) == TensorType{DType::i32, {}}, ErrorKind::type,
        "the count of steps must be i32[], not {}", to_string(op.type(step)));
  return {type, op.type(velocity)};
}

Cost cost(const OpView& op, std::span<const TensorType>) {
  return ElementwiseCost{numel(op.shape(param)), op.has(velocity) ? 7.0 : 4.0};
}

// The order of operations, and the roundings, are those of torch.optim.SGD.
struct Rule {
  float rate, momentum, undamped, decay;
  bool first, nesterov;

  explicit Rule(const KernelCall& call)
      : rate(*call.inputs[sgd::learning_rate].as<float>()),
        momentum(*call.inputs[sgd::momentum].as<float>()),
        undamped(static_cast<float>(1.0 - *call.inputs[sgd::dampening].as<float>())),
        decay(*call.inputs[sgd::weight_decay].as<float>()),
        first(call.has_input(step) && *call.inputs[step].as<int32_t>() == 0),
        nesterov(call.attrs.flag("nesterov")) {}

  float direction(float p, float g) const { return decay == 0 ? g : multiply_add(p, decay, g); }
  float new_velocity(float p, float g, float v) const {
    const float d = direction(p, g);
    return first ? d : multiply_add(d, undamped, v * momentum);
  }
  float new_param(float p, float d) const { return multiply_add(d, -rate, p); }
};

void run(const KernelCall& call) {
  const Rule rule(call);
  if (!call.has_input(velocity)) {
    return map<float, float, float>(call.pool, call.inputs, call.outputs[0], [&](float p, float g) {
      return rule.new_param(p, rule.direction(p, g));
    });
  }
  // Both results in one pass: either may be written over what the other is made from.
  struct Context {
    const Rule& rule;
    float *params, *velocities;
  };
  const Context context{rule, call.outputs[0].as<float>(), call.outputs[1].as<float>()};
  const auto work = [](const void* erased, const std::byte* const* blocks, int64_t begin,
                       int64_t length) {
    const auto& c = *static_cast<const Context*>(erased);
    const auto* p = reinterpret_cast<const float*>(blocks[param]);
    const auto* g = reinterpret_cast<const float*>(blocks[grad]);
    const auto* v = reinterpret_cast<const float*>(blocks[velocity]);
#pragma GCC ivdep
    for (int64_t k = 0; k < length; ++k) {
      const float next = c.rule.new_velocity(p[k], g[k], v[k]);
      const float d = c.rule.nesterov
                          ? multiply_add(next, c.rule.momentum, c.rule.direction(p[k], g[k]))
                          : next;
      const float moved = c.rule.new_param(p[k], d);
      c.velocities[begin + k] = next;
      c.params[begin + k] = moved;
    }
  };
  for_each_block(call.pool, call.inputs.first(velocity + 1), call.outputs[0].sizes, work, &context);
}

std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{17, 1003}}) {
    for (const bool has_velocity : {false, true}) {
      for (const bool nesterov : {false, true}) {
        Sample one{std::vector(count, reals({}, {0.01, 0.5})), {{"nesterov", nesterov}}};
        one.operands[param] = one.operands[grad] = reals(shape);
        one.operands[velocity] = has_velocity ? reals(shape) : left_out();
        one.operands[step] = has_velocity ? integers({}, {0, 2}) : left_out();
        all.push_back(std::move(one));
      }
    }
  }
  return all;
}

OpDef row() {
  return {.name = "sgd",
          .operands =
              "param, grad, velocity?, step?, learning_rate, momentum, dampening, "
              "weight_decay",
          .results = "param, velocity",
          .doc = "a step of stochastic gradient descent, with momentum where there is a velocity",
          .kind = Kind::update,
          .attrs = {flag("nesterov", false)},
          .traits = {.in_place = {{0, param}, {1, velocity}}},
          .infer = infer,
          .cost = cost,
          .cpu = run,
          .samples = samples()};
}

}  // namespace sgd
}  // namespace

std::span<const OpDef> optimizer() {
  static const std::vector<OpDef> rows = {sgd::row()};
  return rows;
}

}  // namespace tessera::families
