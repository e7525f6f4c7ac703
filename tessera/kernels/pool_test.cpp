#include "tessera/kernels/pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/kernels/test_tensor.h"

namespace tessera::kernels {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

TEST(PoolOutputSize, LetsOnlyWindowsHangOverThatBeginInside) {
  EXPECT_EQ(pool_output_size(7, 2, 2, 0, 1, false), 3);
  EXPECT_EQ(pool_output_size(7, 2, 2, 0, 1, true), 4);
  EXPECT_EQ(pool_output_size(5, 2, 4, 1, 1, true), 2);  // a third would begin at 7, past the edge
  EXPECT_EQ(pool_output_size(1, 3, 1, 0, 1, false), 0);
}

TEST(MaxPool, PropagatesNanAndNamesItsPlace) {
  TestTensor<float> x({1, 2, 4}, {1, 5, nan, 0, 2, 5, 9, 0});
  TestTensor<float> out({1, 1, 2});
  TestTensor<int32_t> at({1, 1, 2});
  ThreadPool pool(1);
  max_pool(x.view(), {{2, 2}, {2, 2}, {0, 0}, {1, 1}, false}, out.view(), at.view(), pool);
  EXPECT_EQ(out.values[0], 5);
  EXPECT_TRUE(std::isnan(out.values[1]));
  EXPECT_EQ(at.values, (std::vector<int32_t>{1, 2}));  // the first of equal maxima
}

TEST(MaxPool, SkipsPaddingAlsoWhenDilated) {
  TestTensor<float> x({1, 1, 3}, {-5, -6, -7});
  TestTensor<float> out({1, 1, 3});
  TestTensor<int32_t> at({1, 1, 3});
  ThreadPool pool(1);
  max_pool(x.view(), {{1, 2}, {1, 1}, {0, 1}, {1, 2}, false}, out.view(), at.view(), pool);
  EXPECT_EQ(out.values, (std::vector<float>{-6, -5, -6}));
  EXPECT_EQ(at.values, (std::vector<int32_t>{1, 0, 1}));
}

TEST(MaxPoolBackward, RefusesPlacesOutsideThePlane) {
  TestTensor<float> grad({1, 1, 1}, {1}), out({1, 2, 2});
  TestTensor<int32_t> at({1, 1, 1}, {4});
  ThreadPool pool(1);
  EXPECT_THROW(max_pool_backward(grad.view(), at.view(), 2, out.view(), pool), Error);
}

TEST(AvgPool, CountsPaddingOnlyWhenAsked) {
  TestTensor<float> x({1, 2, 2}, {1, 2, 3, 4}), out({1, 1, 1});
  const PoolParams params{{3, 3}, {3, 3}, {1, 1}, {1, 1}, false};
  ThreadPool pool(1);
  AverageWindows windows = average_windows(params, x.view().sizes, out.view().sizes);
  avg_pool(x.view(), windows, 2, out.view(), pool);
  EXPECT_EQ(out.values[0], 2.5F);
  windows.count_padding = true;
  avg_pool(x.view(), windows, 2, out.view(), pool);
  EXPECT_EQ(out.values[0], 10.0F / 9);
  windows.divisor = 4;
  TestTensor<float> grad({1, 1, 1}, {8}), back({1, 2, 2});
  avg_pool_backward(grad.view(), windows, 2, back.view(), pool);
  EXPECT_EQ(back.values, std::vector<float>(4, 2));
}

TEST(AdaptiveWindows, CoverEverythingAndMayOverlap) {
  const auto spans = adaptive_windows(Shape{5}, Shape{3}).spans[2];
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(spans[0].end, 2);
  EXPECT_EQ(spans[1].begin, 1);
  EXPECT_EQ(spans[1].end, 4);
  EXPECT_EQ(spans[2].begin, 3);
}

}  // namespace
}  // namespace tessera::kernels
