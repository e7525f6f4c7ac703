#include "tessera/backend/cpu/kernels/x86/row_sums.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"

namespace tessera::cpu {
namespace {

class RowSums : public NeedsAvx2 {};

// A deviation of zero would make anything of a mean that is off by one in the last place.
TEST_F(RowSums, EqualElementsHaveThemselvesAsMean) {
  for (const float value : {1.6124f, -0.87271f, 1e-3f, 3e7f}) {
    for (const int64_t size : {1, 2, 3, 7, 8, 9, 31, 33, 100, 2047, 2049, 5000, 70001}) {
      const std::vector<float> x(static_cast<size_t>(size), value);
      const avx2::RowMoments moments = avx2::moments_of(x.data(), size);
      EXPECT_EQ(moments.mean, value) << size;
      EXPECT_NEAR(moments.variance, 0, 1e-13 * double{value} * double{value}) << size;
    }
  }
}

TEST_F(RowSums, InfiniteElementsMakeTheMeanInfinite) {
  std::vector<float> x(20, 1.0f);
  x[13] = std::numeric_limits<float>::infinity();
  const avx2::RowMoments moments = avx2::moments_of(x.data(), 20);
  EXPECT_EQ(moments.mean, x[13]);
  EXPECT_TRUE(std::isnan(moments.variance));
}

}  // namespace
}  // namespace tessera::cpu
