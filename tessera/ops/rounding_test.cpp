#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tessera/base/stochastic_rounding.h"
#include "tessera/ir/text.h"
#include "tessera/ops/run_op_for_test.h"

namespace tessera {
namespace {

constexpr int64_t draws = 1 << 16;
// Of a mean of draws: how many deviations it may be off. Once in a million, but what is drawn is
// the same in every run.
constexpr double deviations = 5;

std::vector<Half> rounded(const std::vector<float>& values, int64_t key = 1, RngState rng = {}) {
  const Shape shape = {static_cast<int64_t>(values.size())};
  return OpRun("stochastic_cast", {floats(shape, values)}, {{"key", key}}, rng)[0].elements<Half>();
}

// One for every element that went up.
std::vector<int> ups(float value, int64_t key, RngState rng) {
  const std::vector<Half> halves = rounded(std::vector<float>(draws, value), key, rng);
  std::vector<int> up;
  for (const Half half : halves) up.push_back(to_float(half) > value);
  return up;
}

double correlation(const std::vector<int>& a, const std::vector<int>& b, size_t lag = 0) {
  double sum = 0;
  for (size_t i = lag; i < a.size(); ++i) sum += (2 * a[i] - 1) * (2 * b[i - lag] - 1);
  return sum / static_cast<double>(a.size() - lag);
}

const double uncorrelated = deviations / std::sqrt(double{draws});

TEST(StochasticCast, TheMeanIsTheNumber) {
  for (const float value :
       {1.0001F, 1.0005F, 1.00097F, 3.14159F, 1000.3F, 65503.9F, 0.1F, 7e-3F, 6.2e-5F, 6.1e-5F,
        // Halves lie evenly from here on.
        6.09e-5F, 3e-5F, 1.0001e-6F, 0x1.8p-24F, 5e-8F, 1e-8F, 0x1.8p-27F, 1e-9F, 1e-12F, 1e-40F}) {
    for (const float number : {value, -value}) {
      SCOPED_TRACE(number);
      const std::vector<Half> halves = rounded(std::vector<float>(draws, number), 7);
      // Its neighbours, from all halves.
      float lower = -std::numeric_limits<float>::infinity(), upper = -lower;
      for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
        const float half = to_float(Half{static_cast<uint16_t>(bits)});
        if (half <= number) lower = std::max(lower, half);
        if (half >= number) upper = std::min(upper, half);
      }
      const double gap = double{upper} - lower, wanted = (double{number} - lower) / gap;
      double count = 0;
      for (const Half half : halves) {
        ASSERT_TRUE(to_float(half) == lower || to_float(half) == upper) << to_float(half);
        EXPECT_EQ(std::signbit(to_float(half)), std::signbit(number));
        count += to_float(half) == upper ? 1 : 0;
      }
      const double allowed = deviations * std::sqrt(wanted * (1 - wanted) / draws);
      EXPECT_NEAR(count / draws, wanted, allowed + 1e-7);
    }
  }
}

TEST(StochasticCast, HalvesStayWhatTheyAre) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    values.push_back(to_float(Half{static_cast<uint16_t>(bits)}));
  }
  const std::vector<Half> halves = rounded(values);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(to_float(halves[i])), std::bit_cast<uint32_t>(values[i]));
  }
}

TEST(StochasticCast, BeyondTheLargestHalfItIsTheNearest) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const auto& [value, wanted] : std::vector<std::pair<float, float>>{{65504.01F, 65504},
                                                                          {65519.99F, 65504},
                                                                          {65520, infinity},
                                                                          {65530, infinity},
                                                                          {1e38F, infinity},
                                                                          {infinity, infinity}}) {
    for (const Half half : rounded(std::vector<float>(100, value))) {
      EXPECT_EQ(to_float(half), wanted) << value;
    }
    for (const Half half : rounded(std::vector<float>(100, -value))) {
      EXPECT_EQ(to_float(half), -wanted) << value;
    }
  }
  EXPECT_TRUE(std::isnan(to_float(rounded({NAN})[0])));
}

TEST(StochasticCast, KeysStepsSeedsAndReplicasAreUncorrelated) {
  constexpr float middle = 1 + 0x1p-11F;
  const RngState state{.seed = 3, .step = 8};
  const std::vector<int> own = ups(middle, 5, state);
  EXPECT_EQ(own, ups(middle, 5, state));
  EXPECT_LT(std::abs(correlation(own, ups(middle, 6, state))), uncorrelated) << "keys";
  EXPECT_LT(std::abs(correlation(own, ups(middle, 5, {.seed = 3, .step = 9}))), uncorrelated);
  EXPECT_LT(std::abs(correlation(own, ups(middle, 5, {.seed = 4, .step = 8}))), uncorrelated);
  EXPECT_LT(std::abs(correlation(own, ups(middle, 5, {.seed = 3, .step = 8, .replica = 1}))),
            uncorrelated);
}

TEST(StochasticCast, ElementsAreUncorrelated) {
  constexpr float middle = 1 + 0x1p-11F;
  for (int64_t key = 0; key < 5; ++key) {
    const std::vector<int> own = ups(middle, key, {});
    for (const size_t lag : {1, 2, 3, 4, 7, 8, 16, 64, 256, 1000, 4096}) {
      EXPECT_LT(std::abs(correlation(own, own, lag)), uncorrelated) << lag;
    }
  }
}

TEST(StochasticCast, TakesOnlyF32) {
  EXPECT_THROW(OpRun("stochastic_cast", {ints({1}, {1})}, {{"key", int64_t{1}}}), Error);
}

// A body runs the row on blocks; which elements they are stays the same.
TEST(StochasticCast, IsTheSameAsAStepOfABody) {
  std::vector<float> values;
  for (int i = 0; i < 5000; ++i) values.push_back(1 + static_cast<float>(i) * 0.0001F);
  const HostTensor x = floats({50, 100}, values);
  const RngState rng{.seed = 2, .step = 1};
  const auto alone = OpRun("stochastic_cast", {x}, {{"key", int64_t{11}}}, rng);
  const auto fused = OpRun(
      "map", {x},
      {{"body", body_attr(parse_body("%0 = neg(a0); %1 = neg(%0); %2 = stochastic_cast(%1) {key "
                                     "= 11} : f16; out %2"))}},
      rng);
  EXPECT_EQ(alone[0].elements<Half>(), fused[0].elements<Half>());
}

}  // namespace
}  // namespace tessera
