#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/base/float_pair.h"
#include "tessera/ops/run_op_for_test.h"

namespace tessera {
namespace {

HostTensor number(double value) {
  const FloatPair pair(value);
  return floats({2}, {pair.high, pair.low});
}
HostTensor steps(float value) { return floats({}, {value}); }

struct Hyper {
  double rate = 0.1, momentum = 0, dampening = 0, decay = 0;
};

OpRun step(const HostTensor& param, const HostTensor& grad, const HostTensor& steps_so_far,
           const HostTensor& velocity, const Hyper& h, bool nesterov = false) {
  return OpRun("sgd",
               {param, grad, steps_so_far, velocity, number(h.rate), number(h.momentum),
                number(h.dampening), number(h.decay)},
               {{"nesterov", nesterov}});
}

TEST(FloatPair, KeepsMoreBitsThanAFloat) {
  for (const double x : {0.999, 1e-8, 0.1, 65500.0, -3.3}) {
    EXPECT_NEAR(FloatPair(x).sum(), x, std::abs(x) * 1e-14);
  }
  EXPECT_EQ(FloatPair(INFINITY).sum(), INFINITY);
}

TEST(Sgd, PlainStep) {
  const auto out =
      step(floats({2}, {1, 2}), floats({2}, {10, -10}), left_out(), left_out(), {.rate = 0.5});
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].elements<float>(), (std::vector<float>{-4, 7}));
}

TEST(Sgd, WeightDecayPullsToZero) {
  const auto out = step(floats({1}, {8}), floats({1}, {0}), left_out(), left_out(),
                        {.rate = 0.5, .decay = 0.25});
  EXPECT_EQ(out[0].elements<float>()[0], 7);
}

TEST(Sgd, FirstVelocityIsTheGradientWhateverTheDampening) {
  const Hyper h{.rate = 1, .momentum = 0.5, .dampening = 0.5};
  const HostTensor grad = floats({1}, {4});
  const auto first = step(floats({1}, {0}), grad, steps(0), floats({1}, {99}), h);
  EXPECT_EQ(first[1].elements<float>()[0], 1);
  EXPECT_EQ(first[2].elements<float>()[0], 4);
  EXPECT_EQ(first[0].elements<float>()[0], -4);
  const auto second = step(first[0], grad, first[1], first[2], h);
  EXPECT_EQ(second[2].elements<float>()[0], 0.5F * 4 + 0.5F * 4);
  EXPECT_EQ(second[0].elements<float>()[0], -8);
}

TEST(Sgd, NesterovLooksAhead) {
  const Hyper h{.rate = 1, .momentum = 0.5};
  const auto out = step(floats({1}, {0}), floats({1}, {4}), steps(1), floats({1}, {2}), h, true);
  EXPECT_EQ(out[2].elements<float>()[0], 5);
  EXPECT_EQ(out[0].elements<float>()[0], -(4 + 0.5F * 5));
}

TEST(Sgd, AMomentumSwitchedOffLetsTheVelocityRest) {
  const Hyper h{.rate = 1, .momentum = 0, .dampening = 0.5};
  const auto out = step(floats({1}, {0}), floats({1}, {4}), steps(3), floats({1}, {2}), h);
  EXPECT_EQ(out[0].elements<float>()[0], -4);
  EXPECT_EQ(out[1].elements<float>()[0], 3);
  EXPECT_EQ(out[2].elements<float>()[0], 2);
}

TEST(Sgd, ShapesMustAgree) {
  EXPECT_THROW(step(floats({2}, {1, 2}), floats({1}, {1}), left_out(), left_out(), {}), Error);
  EXPECT_THROW(step(floats({1}, {1}), floats({1}, {1}), left_out(), floats({1}, {1}), {}), Error);
}

// Twenty steps of a row on known gradients, against the same in double.
constexpr size_t elements = 7;
constexpr int step_count = 20;

double gradient(int at_step, size_t i) {
  return std::sin(1.7 * at_step + 0.9 * static_cast<double>(i)) * (1 + static_cast<double>(i));
}

// Everything an optimiser knows of one weight; `t` counts from one.
struct Exact {
  std::vector<double> p, a = std::vector<double>(elements), b = a, c = a;
};
using ExactStep = std::function<void(Exact&, const std::vector<double>& g, int t)>;

void expect_follows(const std::string& row, size_t memories, const std::vector<double>& numbers,
                    const Attrs& attrs, const ExactStep& exact_step) {
  SCOPED_TRACE(row);
  std::vector<float> start(elements);
  std::iota(start.begin(), start.end(), -2.5F);
  Exact exact{std::vector<double>(start.begin(), start.end())};
  std::vector<HostTensor> states = {floats({elements}, start), steps(0)};
  for (size_t i = 0; i < memories; ++i) {
    states.push_back(floats({elements}, std::vector<float>(elements)));
  }
  const bool may_have_more =
      row.starts_with("rmsprop") && memories == (row == "rmsprop" ? 1U : 2U);  // no momentum buffer
  for (int t = 1; t <= step_count; ++t) {
    std::vector<float> g;
    for (size_t i = 0; i < elements; ++i) g.push_back(static_cast<float>(gradient(t, i)));
    std::vector<HostTensor> operands = {states[0], floats({elements}, g), states[1]};
    operands.insert(operands.end(), states.begin() + 2, states.end());
    if (may_have_more) operands.push_back(left_out());
    for (const double x : numbers) operands.push_back(number(x));
    const OpRun run(row, operands, attrs);
    ASSERT_EQ(run.size(), states.size());
    for (size_t i = 0; i < states.size(); ++i) states[i] = run[i];
    exact_step(exact, std::vector<double>(g.begin(), g.end()), t);
  }
  const auto ours = states[0].elements<float>();
  double distance = 0, norm = 0;
  for (size_t i = 0; i < elements; ++i) {
    distance += std::pow(static_cast<double>(ours[i]) - exact.p[i], 2);
    norm += std::pow(exact.p[i], 2);
  }
  EXPECT_LT(std::sqrt(distance / norm), 1e-6);
  EXPECT_EQ(states[1].elements<float>()[0], step_count);
}

ExactStep exact_adam(double rate, double b1, double b2, double eps, double decay, bool corrected,
                     bool decoupled) {
  return [=](Exact& x, const std::vector<double>& grads, int t) {
    for (size_t i = 0; i < elements; ++i) {
      const double g = grads[i] + (decoupled ? 0 : decay * x.p[i]);
      if (decoupled) x.p[i] *= 1 - rate * decay;
      x.a[i] = b1 * x.a[i] + (1 - b1) * g;
      x.b[i] = b2 * x.b[i] + (1 - b2) * g * g;
      const double m = corrected ? x.a[i] / (1 - std::pow(b1, t)) : x.a[i];
      const double v = corrected ? x.b[i] / (1 - std::pow(b2, t)) : x.b[i];
      x.p[i] -= rate * m / (std::sqrt(v) + eps);
    }
  };
}

TEST(Adam, FollowsItsFormula) {
  for (const bool corrected : {true, false}) {
    for (const bool decoupled : {true, false}) {
      expect_follows("adam", 2, {0.01, 0.9, 0.999, 1e-8, 0.1},
                     {{"bias_correction", corrected}, {"decoupled", decoupled}},
                     exact_adam(0.01, 0.9, 0.999, 1e-8, 0.1, corrected, decoupled));
    }
  }
}

TEST(Lamb, FollowsItsFormula) {
  const double rate = 0.01, b1 = 0.9, b2 = 0.999, eps = 1e-6, decay = 0.1;
  for (const bool corrected : {true, false}) {
    for (const double greatest : {65500.0, 2.0}) {
      const auto exact = [=](Exact& x, const std::vector<double>& g, int t) {
        std::vector<double> way(elements);
        double weight_norm = 0, way_norm = 0;
        for (size_t i = 0; i < elements; ++i) {
          x.a[i] = b1 * x.a[i] + (1 - b1) * g[i];
          x.b[i] = b2 * x.b[i] + (1 - b2) * g[i] * g[i];
          const double m = corrected ? x.a[i] / (1 - std::pow(b1, t)) : x.a[i];
          const double v = corrected ? x.b[i] / (1 - std::pow(b2, t)) : x.b[i];
          way[i] = m / (std::sqrt(v) + eps) + decay * x.p[i];
          weight_norm += x.p[i] * x.p[i];
          way_norm += way[i] * way[i];
        }
        const double trust = std::min(std::sqrt(weight_norm), greatest) / std::sqrt(way_norm);
        for (size_t i = 0; i < elements; ++i) x.p[i] -= rate * trust * way[i];
      };
      expect_follows("lamb", 2, {rate, b1, b2, eps, decay, greatest},
                     {{"bias_correction", corrected}}, exact);
    }
  }
}

TEST(Lamb, AWeightOfZerosMoves) {
  const auto out = OpRun("lamb", {floats({2}, {0, 0}), floats({2}, {1, -1}), steps(0),
                                  floats({2}, {0, 0}), floats({2}, {0, 0}), number(0.5),
                                  number(0.9), number(0.999), number(0), number(0), number(10)});
  EXPECT_FLOAT_EQ(out[0].elements<float>()[0], -0.5F);
  EXPECT_FLOAT_EQ(out[0].elements<float>()[1], 0.5F);
}

TEST(Rmsprop, FollowsItsFormula) {
  const double rate = 0.01, alpha = 0.99, decay = 0.1;
  for (const bool centered : {false, true}) {
    for (const double momentum : {0.0, 0.9}) {
      for (const bool tf : {false, true}) {
        const double eps = tf ? 1e-3 : 1e-8;
        const auto exact = [=](Exact& x, const std::vector<double>& grads, int t) {
          for (size_t i = 0; i < elements; ++i) {
            const double g = grads[i] + decay * x.p[i];
            if (tf && t == 1) x.a[i] = 1;
            x.a[i] = alpha * x.a[i] + (1 - alpha) * g * g;
            x.b[i] = alpha * x.b[i] + (1 - alpha) * g;
            const double spread = centered ? x.a[i] - x.b[i] * x.b[i] : x.a[i];
            const double way = g / (tf ? std::sqrt(spread + eps) : std::sqrt(spread) + eps);
            x.c[i] = momentum * x.c[i] + (tf ? rate * way : way);
            x.p[i] -= tf ? x.c[i] : rate * x.c[i];
          }
        };
        expect_follows(centered ? "rmsprop_centered" : "rmsprop",
                       (centered ? 2U : 1U) + (momentum != 0 ? 1U : 0U),
                       {rate, alpha, eps, decay, momentum}, {{"tf_variant", tf}}, exact);
      }
    }
  }
}

TEST(ClipFactor, IsForAllGradientsTogether) {
  const auto factor = [](double max_norm) {
    const OpRun run("clip_factor", {number(max_norm), floats({2}, {3, 0}), floats({}, {-4})});
    return run[0].elements<float>()[0];
  };
  EXPECT_FLOAT_EQ(factor(2.5), 0.5F);
  EXPECT_EQ(factor(6), 1);
  EXPECT_EQ(factor(INFINITY), 1);
  EXPECT_EQ(factor(0), 0);
}

}  // namespace
}  // namespace tessera
