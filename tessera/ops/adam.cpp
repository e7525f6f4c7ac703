// Adam, AdamW and LAMB: steps from running means of the gradient and of its square.
#include <cmath>

#include "tessera/kernels/scalar_math.h"
#include "tessera/ops/optimizer_parts.h"

namespace tessera::optimizer_parts {
namespace {

using namespace row_parts;

enum AdamOperand : size_t {
  first_moment = memory,
  second_moment,
  learning_rate,
  beta1,
  beta2,
  eps,
  weight_decay,
  max_weight_norm  // LAMB's
};
constexpr size_t numbers = learning_rate;

std::vector<TensorType> infer(const OpView& op) { return infer_update(op, numbers); }

Cost cost(const OpView& op, std::span<const TensorType>) {
  return ElementwiseCost{numel(op.shape(param)), 16};
}

// How far the moments of so few steps are below what they estimate.
struct BiasCorrection {
  double first = 1, second = 1;

  explicit BiasCorrection(const KernelCall& call) {
    if (!call.attrs.flag("bias_correction")) return;
    const double steps = static_cast<double>(updates_so_far(call)) + 1;
    first = 1 - std::pow(number(call, beta1), steps);
    second = 1 - std::pow(number(call, beta2), steps);
  }
};

// In the order of operations, and with the roundings, of PyTorch's Adam and AdamW.
struct Moments {
  float keep_first, add_first, keep_second, add_second;

  explicit Moments(const KernelCall& call)
      : keep_first(static_cast<float>(number(call, beta1))),
        add_first(static_cast<float>(1 - number(call, beta1))),
        keep_second(static_cast<float>(number(call, beta2))),
        add_second(static_cast<float>(1 - number(call, beta2))) {}

  float first(float m, float g) const { return multiply_add(g, add_first, m * keep_first); }
  float second(float v, float g) const { return multiply_add(add_second * g, g, v * keep_second); }
};

Sample sample(const Shape& shape, size_t count, double steps, Attrs attrs) {
  Sample one = update_sample(shape, numbers, count, 2, steps);
  one.attrs = std::move(attrs);
  return one;
}

namespace adam {

constexpr size_t count = max_weight_norm;

void run(const KernelCall& call) {
  const Moments moments(call);
  const BiasCorrection bias(call);
  const double rate = number(call, learning_rate);
  const double decay = number(call, weight_decay);
  const bool decoupled = call.attrs.flag("decoupled");
  const float into_grad = decoupled ? 0 : static_cast<float>(decay);
  const float shrink = decoupled ? static_cast<float>(1 - rate * decay) : 1;
  const auto step_size = static_cast<float>(-(rate / bias.first));
  const auto root_bias = static_cast<float>(std::sqrt(bias.second));
  const auto epsilon = static_cast<float>(number(call, eps));
  const std::array operands = {call.inputs[param], call.inputs[grad], call.inputs[first_moment],
                               call.inputs[second_moment]};
  update_elements(call, operands, std::array<size_t, 3>{0, 2, 3}, [&](const auto& in) {
    const float g = into_grad == 0 ? in[1] : multiply_add(in[0], into_grad, in[1]);
    const float p = in[0] * shrink;
    const float m = moments.first(in[2], g);
    const float v = moments.second(in[3], g);
    const float denominator = std::sqrt(v) / root_bias + epsilon;
    return std::array{p + step_size * m / denominator, m, v};
  });
  count_update(call);
}

std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (const bool corrected : {false, true}) {
    for (const bool decoupled : {false, true}) {
      const Attrs attrs = {{"bias_correction", corrected}, {"decoupled", decoupled}};
      all.push_back(sample({3, 5}, count, 0, attrs));
      all.push_back(sample({}, count, 1, attrs));
      all.push_back(sample({17, 1003}, count, 7, attrs));
    }
  }
  return all;
}

OpDef row() {
  return {.name = "adam",
          .operands =
              "param, grad, step, first_moment, second_moment, learning_rate, beta1, beta2, eps, "
              "weight_decay",
          .results = "param, step, first_moment, second_moment",
          .doc = "a step of Adam; with `decoupled` of AdamW, whose decay is not in the moments",
          .kind = Kind::update,
          .attrs = {flag("bias_correction", true), flag("decoupled", false)},
          .traits = update_traits(numbers),
          .infer = infer,
          .cost = cost,
          .cpu = run,
          .samples = samples()};
}

}  // namespace adam

namespace lamb {

constexpr size_t count = max_weight_norm + 1;

// In double, rounded once: there is no order of PyTorch's to follow.
void run(const KernelCall& call) {
  const Moments moments(call);
  const BiasCorrection bias(call);
  const double rate = number(call, learning_rate);
  const double decay = number(call, weight_decay);
  const double epsilon = number(call, eps);
  const double greatest = number(call, max_weight_norm);
  update_elements(
      call, std::array{call.inputs[grad], call.inputs[first_moment], call.inputs[second_moment]},
      std::array<size_t, 2>{2, 3}, [&](const auto& in) {
        return std::array{moments.first(in[1], in[0]), moments.second(in[2], in[0])};
      });

  const double scale_first = 1 / bias.first, scale_second = 1 / bias.second;
  const auto direction = [=](double p, double m, double v) {
    return m * scale_first / (std::sqrt(v * scale_second) + epsilon) + decay * p;
  };
  const std::array operands = {call.inputs[param], call.outputs[2], call.outputs[3]};
  const auto& shape = call.outputs[0].sizes;
  const double weight_norm = std::sqrt(
      map_sum<float>(call.pool, call.inputs.first(1), shape, [](double p) { return p * p; }));
  const double update_norm = std::sqrt(
      map_sum<float, float, float>(call.pool, operands, shape, [&](double p, double m, double v) {
        const double d = direction(p, m, v);
        return d * d;
      }));
  const bool trusted = weight_norm != 0 && update_norm != 0;
  const double trust = trusted ? minimum(weight_norm, greatest) / update_norm : 1;
  const double step_size = rate * trust;
  update_elements(call, operands, std::array<size_t, 1>{0}, [&](const auto& in) {
    const double p = static_cast<double>(in[0]);
    const double d = direction(p, static_cast<double>(in[1]), static_cast<double>(in[2]));
    return std::array{static_cast<float>(p - step_size * d)};
  });
  count_update(call);
}

std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (const bool corrected : {false, true}) {
    const Attrs attrs = {{"bias_correction", corrected}};
    all.push_back(sample({3, 5}, count, 0, attrs));
    all.push_back(sample({}, count, 1, attrs));
    all.push_back(sample({17, 1003}, count, 7, attrs));
  }
  return all;
}

OpDef row() {
  return {.name = "lamb",
          .operands =
              "param, grad, step, first_moment, second_moment, learning_rate, beta1, beta2, eps, "
              "weight_decay, max_weight_norm",
          .results = "param, step, first_moment, second_moment",
          .doc = "a step of LAMB: AdamW's direction, as long as the parameter's norm",
          .kind = Kind::update,
          .attrs = {flag("bias_correction", true)},
          .traits = update_traits(numbers),
          .infer = infer,
          .cost = cost,
          .cpu = run,
          .samples = samples()};
}

}  // namespace lamb
}  // namespace

OpDef adam_row() { return adam::row(); }
OpDef lamb_row() { return lamb::row(); }

}  // namespace tessera::optimizer_parts
