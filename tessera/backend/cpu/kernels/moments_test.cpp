#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"

namespace tessera::cpu {
namespace {

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

TEST(Moments, OfPlainImages) {
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

TEST(Moments, OfMatrices) {
  for (const Shape& shape : std::vector<Shape>{{6, 5}, {16, 64}, {1000, 19}, {5, 3, 1, 1}}) {
    expect_good(shape, plain_layout);
  }
}

TEST(Moments, OfChannelsAndImagesInGroups) {
  for (const Shape& shape :
       std::vector<Shape>{{8, 8, 5, 7}, {8, 24, 1, 1}, {16, 16, 28, 28}, {8, 8, 60, 61}}) {
    expect_good(shape, channels_layout);
    expect_good(shape, batch_layout);
  }
  expect_good({1, 64, 7, 7}, channels_layout);
}

TEST(Moments, NothingCancelsFarFromZero) {
  expect_good({4, 8, 40, 40}, plain_layout, 1000, 1001);
  expect_good({4, 8, 40, 40}, channels_layout, 1000, 1001);
  expect_good({500, 8}, plain_layout, 1000, 1001);
}

TEST(Moments, OthersGoToTheReference) {
  EXPECT_EQ(OperatorTrial("moments", {{{4, 5, 6}}}, {{"dim", std::vector<int64_t>{0}}}).kernel(),
            "reference");
}

}  // namespace
}  // namespace tessera::cpu
