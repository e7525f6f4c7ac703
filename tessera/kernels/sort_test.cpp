#include "tessera/kernels/sort.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/kernels/test_tensor.h"

namespace tessera::kernels {
namespace {

TEST(Sort, PutsNanLastAndKeepsTheOrderOfEqualElements) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  TestTensor<float> x({5}, {2, nan, 1, 2, 1}), values({5});
  TestTensor<int32_t> indices({5});
  ThreadPool pool(1);
  sort(x.view(), 0, false, values.view(), indices.view(), pool);
  EXPECT_EQ(indices.values, (std::vector<int32_t>{2, 4, 0, 3, 1}));
  sort(x.view(), 0, true, values.view(), indices.view(), pool);
  EXPECT_EQ(indices.values, (std::vector<int32_t>{1, 0, 3, 2, 4}));
  EXPECT_TRUE(std::isnan(values.values[0]));
}

TEST(Sort, StopsAtAsManyAsAreWanted) {
  TestTensor<int32_t> x({3, 2}, {5, 1, 3, 9, 4, 7}), values({2, 2}), indices({2, 2});
  ThreadPool pool(1);
  sort(x.view(), 0, true, values.view(), indices.view(), pool);
  EXPECT_EQ(values.values, (std::vector<int32_t>{5, 9, 4, 7}));
  EXPECT_EQ(indices.values, (std::vector<int32_t>{0, 1, 2, 2}));
}

TEST(Sort, FindsDifferentElements) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  TestTensor<float> x({7}, {2, nan, -1, 2, nan, -0.0F, 0}), values({5});
  TestTensor<int32_t> inverse({7}), counts({5});
  ThreadPool pool(1);
  find_unique(x.view(), values.view(), inverse.view(), counts.view(), pool);
  EXPECT_EQ(inverse.values, (std::vector<int32_t>{2, 3, 0, 2, 4, 1, 1}));
  EXPECT_EQ(counts.values, (std::vector<int32_t>{1, 2, 2, 1, 1}));
  EXPECT_EQ(values.values[0], -1);
  EXPECT_TRUE(std::signbit(values.values[1]));
  EXPECT_EQ(values.values[2], 2);
  EXPECT_TRUE(std::isnan(values.values[4]));

  TestTensor<float> others({4});
  TestTensor<int32_t> other_counts({4});
  EXPECT_THROW(find_unique(x.view(), others.view(), inverse.view(), other_counts.view(), pool),
               Error);
}

}  // namespace
}  // namespace tessera::kernels
