// Stochastic gradient descent, and the factor that clips gradients. Hyper-parameters are operands,
// so that changing them compiles nothing anew.
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/kernels/scalar_math.h"
#include "tessera/ops/families.h"
#include "tessera/ops/optimizer_parts.h"
#include "tessera/ops/update_of_product.h"

namespace tessera::families {
namespace {

using namespace row_parts;
using namespace optimizer_parts;

namespace sgd {

enum Operand : size_t {
  velocity = memory,
  learning_rate,
  momentum,
  dampening,
  weight_decay,
  count
};
constexpr size_t numbers = learning_rate;

std::vector<TensorType> infer(const OpView& op) {
  check(op.has(velocity) == op.has(step), ErrorKind::value,
        "velocity and the count of steps go together");
  return infer_update(op, numbers);
}

Cost cost(const OpView& op, std::span<const TensorType>) {
  return ElementwiseCost{numel(op.shape(param)), op.has(velocity) ? 7.0 : 4.0};
}

// The order of operations, and the roundings, are those of torch.optim.SGD.
struct Rule {
  float rate, momentum, undamped, decay;
  bool first, nesterov;

  explicit Rule(const KernelCall& call)
      : rate(static_cast<float>(number(call, sgd::learning_rate))),
        momentum(static_cast<float>(number(call, sgd::momentum))),
        undamped(static_cast<float>(1.0 - number(call, sgd::dampening))),
        decay(static_cast<float>(number(call, sgd::weight_decay))),
        first(updates_so_far(call) == 0),
        nesterov(call.attrs.flag("nesterov")) {}

  float direction(float p, float g) const { return decay == 0 ? g : multiply_add(p, decay, g); }
  float new_velocity(float d, float v) const {
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
  const std::array operands = {call.inputs[param], call.inputs[grad], call.inputs[velocity]};
  if (rule.momentum == 0) {  // switched off: the velocity rests, as PyTorch's does
    update_elements(call, operands, std::array<size_t, 2>{0, 2}, [&](const auto& in) {
      return std::array{rule.new_param(in[0], rule.direction(in[0], in[1])), in[2]};
    });
    *call.outputs[1].as<float>() = updates_so_far(call);
    return;
  }
  update_elements(call, operands, std::array<size_t, 2>{0, 2}, [&](const auto& in) {
    const float d = rule.direction(in[0], in[1]);
    const float next = rule.new_velocity(d, in[2]);
    const float way = rule.nesterov ? multiply_add(next, rule.momentum, d) : next;
    return std::array{rule.new_param(in[0], way), next};
  });
  count_update(call);
}

std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{17, 1003}}) {
    for (const size_t velocities : {0, 1}) {
      for (const bool nesterov : {false, true}) {
        Sample one = update_sample(shape, numbers, count, velocities, nesterov ? 1 : 0);
        if (velocities == 0) one.operands[step] = left_out();
        one.attrs = {{"nesterov", nesterov}};
        all.push_back(std::move(one));
      }
    }
  }
  return all;
}

OpDef row() {
  return {
      .name = "sgd",
      .operands = "param, grad, step?, velocity?, learning_rate, momentum, dampening, weight_decay",
      .results = "param, step, velocity",
      .doc = "a step of stochastic gradient descent, with momentum where there is a velocity",
      .kind = Kind::update,
      .attrs = {flag("nesterov", false)},
      .traits = update_traits(numbers),
      .infer = infer,
      .cost = cost,
      .cpu = run,
      .samples = samples()};
}

}  // namespace sgd

namespace clip_factor {

std::vector<TensorType> infer(const OpView& op) {
  check(op.type(0) == TensorType{DType::f32, {2}}, ErrorKind::type,
        "the greatest norm must be f32[2], not {}", to_string(op.type(0)));
  for (size_t i = 1; i < op.count(); ++i) {
    check(op.type(i).dtype == DType::f32, ErrorKind::type, "a gradient must be f32, not {}",
          name_of(op.type(i).dtype));
  }
  return {{DType::f32, {}}};
}

Cost cost(const OpView& op, std::span<const TensorType>) {
  int64_t elements = 1;
  for (size_t i = 1; i < op.count(); ++i) elements += numel(op.shape(i));
  return ReductionCost{elements, 1};
}

// As torch.nn.utils.clip_grad_norm_ has it, with the sums in double.
void run(const KernelCall& call) {
  double squares = 0;
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    squares += map_sum<float>(call.pool, call.inputs.subspan(i, 1), call.inputs[i].sizes,
                              [](double g) { return g * g; });
  }
  const double factor = number(call, 0) / (std::sqrt(squares) + 1e-6);
  *call.outputs[0].as<float>() = static_cast<float>(minimum(factor, 1.0));
}

OpDef row() {
  return {.name = "clip_factor",
          .operands = "max_norm, grads*",
          .results = "out",
          .doc = "what all gradients are multiplied with, so that their norm is at most max_norm",
          .kind = Kind::reduction,
          .infer = infer,
          .cost = cost,
          .cpu = run,
          .samples = {{{reals({2}, {0.5, 1}), reals({3, 5}), reals({}), reals({17, 1003})}},
                      {{reals({2}, {50, 60}), reals({2})}}}};
}

}  // namespace clip_factor
}  // namespace

std::span<const OpDef> optimizer() {
  static const std::vector<OpDef> rows = {sgd::row(),
                                          adam_row(),
                                          lamb_row(),
                                          rmsprop_row(),
                                          rmsprop_centered_row(),
                                          clip_factor::row(),
                                          of_product<sgd::row>(),
                                          of_product<adam_row>(),
                                          of_product<rmsprop_row>()};
  return rows;
}

}  // namespace tessera::families
