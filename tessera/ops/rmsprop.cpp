// RMSprop: steps divided by a running root mean square of the gradient; centred, by its deviation.
#include <cmath>

#include "tessera/kernels/scalar_math.h"
#include "tessera/ops/optimizer_parts.h"

namespace tessera::optimizer_parts {
namespace {

using namespace row_parts;

// Operands of the centred form; the plain one has no mean_gradient, and all behind it one earlier.
enum RmspropOperand : size_t {
  mean_square = memory,
  mean_gradient,
  momentum_buffer,
  learning_rate,
  alpha,
  eps,
  weight_decay,
  momentum,
  count
};
template <bool centered>
constexpr size_t at(size_t operand) {
  return centered || operand <= mean_gradient ? operand : operand - 1;
}

template <bool centered>
std::vector<TensorType> infer(const OpView& op) {
  return infer_update(op, at<centered>(learning_rate));
}

Cost cost(const OpView& op, std::span<const TensorType>) {
  return ElementwiseCost{numel(op.shape(param)), 14};
}

// The order of operations, and the roundings, are those of torch.optim.RMSprop. TensorFlow's
// variant begins with a mean square of one, has eps under the root, and the rate in the momentum.
template <bool centered>
struct Rule {
  float rate, keep, add, epsilon, decay, momentum;
  bool tf_variant, first;

  explicit Rule(const KernelCall& call)
      : rate(value(call, learning_rate)),
        keep(value(call, alpha)),
        add(static_cast<float>(1 - number(call, at<centered>(alpha)))),
        epsilon(value(call, eps)),
        decay(value(call, weight_decay)),
        momentum(value(call, optimizer_parts::momentum)),
        tf_variant(call.attrs.flag("tf_variant")),
        first(updates_so_far(call) == 0) {}

  struct Result {
    float param, square, mean, buffer;
  };
  Result operator()(float p, float grad, float square, float mean, float v) const {
    const float g = decay == 0 ? grad : multiply_add(p, decay, grad);
    if (tf_variant && first) square = 1;
    square = multiply_add(add * g, g, square * keep);
    float spread = square;
    if constexpr (centered) {
      mean = multiply_add(g, add, mean * keep);
      spread = multiply_add(-mean, mean, square);
    }
    const float root = tf_variant ? std::sqrt(spread + epsilon) : std::sqrt(spread) + epsilon;
    if (momentum == 0) return {p - rate * g / root, square, mean, v};
    if (tf_variant) {
      v = v * momentum + rate * g / root;
      return {p - v, square, mean, v};
    }
    v = v * momentum + g / root;
    return {multiply_add(v, -rate, p), square, mean, v};
  }

 private:
  static float value(const KernelCall& call, size_t operand) {
    return static_cast<float>(number(call, at<centered>(operand)));
  }
};

template <bool centered>
void run(const KernelCall& call) {
  const Rule<centered> rule(call);
  constexpr size_t v = at<centered>(momentum_buffer);
  const auto& in = call.inputs;
  if constexpr (centered) {
    if (call.has_input(v)) {
      update_elements(call,
                      std::array{in[param], in[grad], in[mean_square], in[mean_gradient], in[v]},
                      std::array<size_t, 4>{0, 2, 3, 4}, [&](const auto& x) {
                        const auto y = rule(x[0], x[1], x[2], x[3], x[4]);
                        return std::array{y.param, y.square, y.mean, y.buffer};
                      });
    } else {
      update_elements(call, std::array{in[param], in[grad], in[mean_square], in[mean_gradient]},
                      std::array<size_t, 3>{0, 2, 3}, [&](const auto& x) {
                        const auto y = rule(x[0], x[1], x[2], x[3], 0);
                        return std::array{y.param, y.square, y.mean};
                      });
    }
  } else if (call.has_input(v)) {
    update_elements(call, std::array{in[param], in[grad], in[mean_square], in[v]},
                    std::array<size_t, 3>{0, 2, 3}, [&](const auto& x) {
                      const auto y = rule(x[0], x[1], x[2], 0, x[3]);
                      return std::array{y.param, y.square, y.buffer};
                    });
  } else {
    update_elements(call, std::array{in[param], in[grad], in[mean_square]},
                    std::array<size_t, 2>{0, 2}, [&](const auto& x) {
                      const auto y = rule(x[0], x[1], x[2], 0, 0);
                      return std::array{y.param, y.square};
                    });
  }
  count_update(call);
}

template <bool centered>
OpDef row() {
  constexpr size_t numbers = at<centered>(learning_rate);
  std::vector<Sample> samples;
  for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{17, 1003}}) {
    for (const size_t buffers : {0, 1}) {
      for (const bool tf_variant : {false, true}) {
        const size_t memories = buffers + (centered ? 2 : 1);
        Sample one =
            update_sample(shape, numbers, at<centered>(count), memories, shape.empty() ? 0 : 5);
        // The mean of squares is not below the square of the mean.
        one.operands[mean_square] = reals(shape, {5, 6});
        one.attrs = {{"tf_variant", tf_variant}};
        samples.push_back(std::move(one));
      }
    }
  }
  const std::string mean = centered ? "mean_gradient, " : "";
  return {.name = centered ? "rmsprop_centered" : "rmsprop",
          .operands = "param, grad, step, mean_square, " + mean +
                      "momentum_buffer?, learning_rate, alpha, eps, weight_decay, momentum",
          .results = "param, step, mean_square, " + mean + "momentum_buffer",
          .doc = centered ? "a step of centred RMSprop, by the gradient's deviation"
                          : "a step of RMSprop, by the gradient's root mean square",
          .kind = Kind::update,
          .attrs = {flag("tf_variant", false)},
          .traits = update_traits(numbers),
          .infer = infer<centered>,
          .cost = cost,
          .cpu = run<centered>,
          .samples = std::move(samples)};
}

}  // namespace

OpDef rmsprop_row() { return row<false>(); }
OpDef rmsprop_centered_row() { return row<true>(); }

}  // namespace tessera::optimizer_parts
