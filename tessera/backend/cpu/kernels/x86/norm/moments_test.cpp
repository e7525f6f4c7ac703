#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"

namespace tessera::cpu {
namespace {

class Moments : public NeedsAvx2 {};

Attrs all_but_channels(const Shape& shape) {
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < static_cast<int64_t>(shape.size()); ++i) {
    if (i != 1) dims.push_back(i);
  }
  return {{"dim", dims}};
}

void expect_good(const Shape& shape, const Layout& layout, double low = 0, double high = 1) {
  SCOPED_TRACE(tessera::to_string(shape) + " " + to_string(layout));
  const OperatorTrial trial("moments", {{shape, layout, low, high}}, all_but_channels(shape));
  trial.expect_agrees("avx2_moments", 5e-7);
}

TEST_F(Moments, OfPlainImages) {
  for (const Shape& shape : std::vector<Shape>{{2, 3, 5, 7},
                                               {1, 1, 1, 9},
                                               {3, 5, 2, 2},
                                               {200, 2, 3, 1},
                                               {4, 16, 28, 28},
                                               {2, 3, 100, 131},
                                               {3, 4, 33},
                                               {2, 3, 4, 5, 6}}) {
    expect_good(shape, plain_layout);
  }
}

TEST_F(Moments, OfMatrices) {
  for (const Shape& shape : std::vector<Shape>{{6, 5}, {16, 64}, {1000, 19}, {5, 3, 1, 1}}) {
    expect_good(shape, plain_layout);
  }
}

TEST_F(Moments, OfChannelsAndImagesInGroups) {
  for (const Shape& shape :
       std::vector<Shape>{{8, 8, 5, 7}, {8, 24, 1, 1}, {16, 16, 28, 28}, {8, 8, 60, 61}}) {
    expect_good(shape, channels_layout);
    expect_good(shape, batch_layout);
  }
  expect_good({1, 64, 7, 7}, channels_layout);
}

TEST_F(Moments, NothingCancelsFarFromZero) {
  expect_good({4, 8, 40, 40}, plain_layout, 1000, 1001);
  expect_good({4, 8, 40, 40}, channels_layout, 1000, 1001);
  expect_good({500, 8}, plain_layout, 1000, 1001);
}

TEST_F(Moments, WhatIsNotFiniteGivesWhatAPlainSumGives) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const Layout& layout : {plain_layout, channels_layout, batch_layout}) {
    SCOPED_TRACE(to_string(layout));
    const Shape shape{8, 8, 5, 7};
    OperatorTrial trial("moments", {{shape, layout}}, all_but_channels(shape));
    float* x = trial.values(0);
    x[0] = infinity;
    x[35] = 1;
    x[36] = -infinity;
    x[2 * 35] = 3e38F;
    x[2 * 35 + 1] = x[2 * 35 + 2] = 3e38F;
    x[3 * 35] = infinity;
    x[3 * 35 + 34] = -infinity;
    x[4 * 35 + 9] = std::numeric_limits<float>::quiet_NaN();
    trial.expect_agrees("avx2_moments", 5e-7);
    const auto mean = trial.result(1)[0];
    const auto* means = reinterpret_cast<const float*>(mean.data());
    EXPECT_EQ(means[0], infinity);
    EXPECT_EQ(means[1], -infinity);
    EXPECT_NEAR(means[2], 9e38 / (8 * 35), 1e32);
    EXPECT_TRUE(std::isnan(means[3]) && std::isnan(means[4]));
    EXPECT_TRUE(std::isfinite(means[5]));
  }
}

TEST_F(Moments, OthersGoToTheReference) {
  EXPECT_EQ(OperatorTrial("moments", {{{4, 5, 6}}}, {{"dim", std::vector<int64_t>{0}}}).kernel(),
            "reference");
}

}  // namespace
}  // namespace tessera::cpu
