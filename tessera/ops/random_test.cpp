#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/ops/run_op_for_test.h"

namespace tessera {
namespace {

constexpr int64_t count = 100'000;

std::vector<float> draw(std::string_view name, Attrs attrs, RngState rng = {5, 6}) {
  const HostTensor like(TensorType{DType::f32, {count}});
  return OpRun(name, {like}, std::move(attrs), rng)[0].elements<float>();
}

double mean_of(const std::vector<float>& x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value);
  return sum / static_cast<double>(x.size());
}
double deviation_of(const std::vector<float>& x) {
  const double mean = mean_of(x);
  double sum = 0;
  for (const float value : x) sum += std::pow(static_cast<double>(value) - mean, 2);
  return std::sqrt(sum / static_cast<double>(x.size()));
}

TEST(Random, ElementsTakeTheirCountersWord) {
  const auto x = draw("uniform", {{"key", int64_t{9}}});
  for (const size_t e : {0UL, 1UL, 7UL, 99'998UL}) {
    EXPECT_EQ(x[e], uniform_from_word(random_words({5, 6}, 9, e / 4)[e % 4]));
  }
}

TEST(Random, KeySeedAndStepMatter) {
  const auto x = draw("uniform", {});
  EXPECT_EQ(draw("uniform", {}), x);
  EXPECT_NE(draw("uniform", {{"key", int64_t{1}}}), x);
  EXPECT_NE(draw("uniform", {}, {5, 7}), x);
  EXPECT_NE(draw("uniform", {}, {6, 6}), x);
}

TEST(Random, Distributions) {
  const auto uniform = draw("uniform", {{"from", -1.0}, {"to", 3.0}});
  EXPECT_NEAR(mean_of(uniform), 1, 0.02);
  EXPECT_GE(*std::min_element(uniform.begin(), uniform.end()), -1);
  EXPECT_LT(*std::max_element(uniform.begin(), uniform.end()), 3);

  const auto normal = draw("normal", {{"mean", 2.0}, {"std", 0.5}});
  EXPECT_NEAR(mean_of(normal), 2, 0.01);
  EXPECT_NEAR(deviation_of(normal), 0.5, 0.01);
  const auto within =
      std::count_if(normal.begin(), normal.end(), [](float x) { return std::abs(x - 2) < 0.5F; });
  EXPECT_NEAR(static_cast<double>(within) / count, 0.6827, 0.01);

  const auto exponential = draw("exponential", {{"lambd", 4.0}});
  EXPECT_NEAR(mean_of(exponential), 0.25, 0.005);
  EXPECT_NEAR(deviation_of(exponential), 0.25, 0.005);
}

std::vector<float> draw_halves(std::string_view name, Attrs attrs, int threads, int64_t size) {
  const HostTensor like(TensorType{DType::f16, {size}});
  const OpRun run(name, {like}, std::move(attrs), {5, 6}, threads);
  std::vector<float> drawn;
  for (const Half half : run[0].elements<Half>()) drawn.push_back(to_float(half));
  return drawn;
}

// One in 4096 floats below 1 is nearest to the half that is 1.
TEST(Random, HalvesDoNotReachTheEnd) {
  struct Range {
    double from, to;
  };
  for (const auto& [from, to] :
       {Range{0, 1}, Range{-1, 0}, Range{-3, -2.5}, Range{0, 0.1}, Range{0, 0.3},
        Range{1, 1.0009765625}, Range{0, 1e-7}, Range{60000, 65504}, Range{0, 1e5}}) {
    SCOPED_TRACE(fmt::format("[{}, {})", from, to));
    const Attrs attrs = {{"from", from}, {"to", to}};
    const auto drawn = draw_halves("uniform", attrs, 1, 200'000);
    const auto [least, most] = std::minmax_element(drawn.begin(), drawn.end());
    EXPECT_GE(*least, to_float(to_half(static_cast<float>(from))));
    EXPECT_LT(*most, to_float(to_half(static_cast<float>(to))));
    EXPECT_LT(double{*most}, to);
    for (const int threads : {2, 3, 5}) {
      EXPECT_EQ(draw_halves("uniform", attrs, threads, 200'000), drawn) << threads << " threads";
    }
  }
  EXPECT_EQ(draw_halves("uniform", {{"from", 0.5}, {"to", 0.5}}, 1, 3), std::vector(3, 0.5F));
}

TEST(Random, HalvesAreTheNearestToWhatFloatsAre) {
  const auto floats = draw("uniform", {});
  const auto halves = draw_halves("uniform", {}, 1, count);
  constexpr float last = 1 - 0x1p-11F;
  int at_the_end = 0;
  for (size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(halves[i], std::min(to_float(to_half(floats[i])), last));
    at_the_end += to_float(to_half(floats[i])) == 1;
  }
  EXPECT_GT(at_the_end, 0);
}

TEST(Random, WholeHalvesAreThoseThatCanBeCounted) {
  const auto drawn = draw_halves("random", {}, 1, count);
  EXPECT_EQ(*std::min_element(drawn.begin(), drawn.end()), 0);
  EXPECT_EQ(*std::max_element(drawn.begin(), drawn.end()), 2048);
}

TEST(Random, NeighbouringNormalsAreIndependent) {
  const auto x = draw("normal", {});
  double product = 0;
  for (size_t i = 0; i + 1 < x.size(); ++i) product += static_cast<double>(x[i] * x[i + 1]);
  EXPECT_NEAR(product / count, 0, 0.02);
}

TEST(Random, BernoulliKeepsItsProbability) {
  EXPECT_NEAR(mean_of(draw("bernoulli", {{"p", 0.3}})), 0.3, 0.01);
  EXPECT_EQ(mean_of(draw("bernoulli", {{"p", 1.0}})), 1);
  EXPECT_EQ(mean_of(draw("bernoulli", {{"p", 0.0}})), 0);
  EXPECT_THROW(draw("bernoulli", {{"p", 1.5}}), Error);
}

TEST(Random, IntegersFillTheirRange) {
  const auto x =
      OpRun("randint", {}, {{"low", int64_t{-2}}, {"high", int64_t{3}}, {"size", Shape{1000}}})[0]
          .elements<int32_t>();
  EXPECT_EQ(*std::min_element(x.begin(), x.end()), -2);
  EXPECT_EQ(*std::max_element(x.begin(), x.end()), 2);
  EXPECT_THROW(OpRun("randint", {}, {{"high", int64_t{0}}, {"size", Shape{1}}}), Error);
}

}  // namespace
}  // namespace tessera
