#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/base/float_pair.h"
#include "tessera/base/half.h"
#include "tessera/ops/run_op_for_test.h"
#include "tessera/ops/run_widened.h"

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

constexpr size_t elements_of_half = 11;

// An optimiser's row whose param, grad and memories are each of a type of its own.
struct HalfRow {
  const char* name;
  size_t memories;
  std::vector<double> numbers;
  bool may_have_more = false;  // a memory that is left out here
};
const std::vector<HalfRow>& half_rows() {
  static const std::vector<HalfRow> rows = {
      {"sgd", 1, {0.01, 0.9, 0.1, 0.1}},
      {"adam", 2, {0.01, 0.9, 0.999, 1e-4, 0.1}},
      {"lamb", 2, {0.01, 0.9, 0.999, 1e-4, 0.1, 65500}},
      {"rmsprop", 1, {0.01, 0.99, 1e-4, 0.1, 0}, true},
      {"rmsprop", 2, {0.01, 0.99, 1e-4, 0.1, 0.9}},
      {"rmsprop_centered", 3, {0.01, 0.99, 1e-4, 0.1, 0.9}},
  };
  return rows;
}

HostTensor rounded(const HostTensor& wide, DType dtype) {
  HostTensor out(TensorType{dtype, wide.type.shape});
  const auto from = wide.elements<float>();
  for (size_t i = 0; i < from.size(); ++i) {
    const Half half = to_half(from[i]);
    const bool is_half = dtype == DType::f16;
    const void* bits = is_half ? static_cast<const void*>(&half) : &from[i];
    std::memcpy(out.memory.data() + i * size_of(dtype), bits, size_of(dtype));
  }
  return out;
}

HostTensor widened(const HostTensor& tensor) {
  if (tensor.type.dtype == DType::f32) return tensor;
  std::vector<float> elements;
  for (size_t i = 0; i < tensor.memory.size() / sizeof(Half); ++i) {
    Half half;
    std::memcpy(&half, tensor.memory.data() + i * sizeof(Half), sizeof(Half));
    elements.push_back(to_float(half));
  }
  return floats(tensor.type.shape, elements);
}

std::vector<HostTensor> run_in_types(const HalfRow& row, std::vector<HostTensor> operands) {
  const OpDef& def = op(row.name);
  const Attrs attrs = completed(def, {});
  std::vector<std::optional<TensorType>> types;
  std::vector<TensorView> inputs, outputs;
  for (HostTensor& operand : operands) {
    types.push_back(operand.present ? std::optional(operand.type) : std::nullopt);
    inputs.push_back(operand.view());
  }
  std::vector<HostTensor> results;
  for (TensorType& type : infer(def, types, attrs)) results.emplace_back(std::move(type));
  for (HostTensor& result : results) outputs.push_back(result.view());
  ThreadPool pool(2, level_for_test());
  run_widened(def, {.inputs = inputs, .outputs = outputs, .attrs = attrs, .pool = pool, .rng = {}});
  return results;
}

// spec: 4.2 accum types
TEST(HalfUpdates, RoundEachResultOnceToTheTypeOfWhatItReplaces) {
  for (const HalfRow& row : half_rows()) {
    for (uint32_t mask = 0; mask < 1U << (row.memories + 2); ++mask) {
      SCOPED_TRACE(fmt::format("{} {:b}", row.name, mask));
      const auto type = [&](size_t i) { return mask >> i & 1U ? DType::f16 : DType::f32; };
      // param, grad, step, memories; the first step finds memories as of others.
      std::vector<HostTensor> operands, wide;
      for (size_t i = 0; i < row.memories + 2; ++i) {
        std::vector<float> elements;
        for (size_t k = 0; k < elements_of_half; ++k) {
          elements.push_back(static_cast<float>((i == 0 ? 1 : 0.5) + std::abs(gradient(3, k + i))));
        }
        operands.push_back(rounded(floats({elements_of_half}, elements), type(i)));
        if (i == 1) operands.push_back(steps(3));
      }
      if (row.may_have_more) operands.push_back(left_out());
      for (const double x : row.numbers) operands.push_back(number(x));
      for (const HostTensor& operand : operands) {
        wide.push_back(operand.present ? widened(operand) : operand);
      }
      const auto results = run_in_types(row, operands);
      const OpRun in_single(row.name, wide);
      ASSERT_EQ(results.size(), row.memories + 2);
      for (size_t r = 0; r < results.size(); ++r) {
        const size_t replaced = r == 0 ? 0 : r + 1;
        EXPECT_EQ(results[r].type, operands[replaced].type) << r;
        EXPECT_EQ(results[r].memory, rounded(in_single[r], results[r].type.dtype).memory) << r;
      }
    }
  }
}

TEST(HalfUpdates, CountStepsAndTakeNumbersInSingleOnly) {
  const auto with = [](DType step_type, DType param) {
    const std::vector<std::optional<TensorType>> types = {
        TensorType{param, {2}},      TensorType{DType::f16, {2}}, TensorType{step_type, {}},
        TensorType{DType::f16, {2}}, TensorType{DType::f32, {2}}, TensorType{DType::f32, {2}},
        TensorType{DType::f32, {2}}, TensorType{DType::f32, {2}}};
    return infer(op("sgd"), types, completed(op("sgd"), {}));
  };
  EXPECT_EQ(with(DType::f32, DType::f16).size(), 3U);
  EXPECT_THROW(with(DType::f16, DType::f16), Error);
  EXPECT_THROW(with(DType::f32, DType::i32), Error);
}

}  // namespace
}  // namespace tessera
