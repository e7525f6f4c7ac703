#include "tessera/kernels/resample.h"

#include <gtest/gtest.h>

#include <limits>

#include "tessera/kernels/test_tensor.h"

namespace tessera::kernels {
namespace {

TEST(Resample, ReflectsWithoutRepeatingTheEdge) {
  TestTensor<float> x({3}, {1, 2, 3}), out({7}), back({3});
  const ScratchVector<Taps> taps = {reflecting_taps(3, 2, 2)};
  ThreadPool pool(1);
  resample(x.view(), taps, out.view(), pool);
  EXPECT_EQ(out.values, (std::vector<float>{3, 2, 1, 2, 3, 2, 1}));
  TestTensor<float> ones({7}, std::vector<float>(7, 1));
  resample_backward(ones.view(), taps, back.view(), pool);
  EXPECT_EQ(back.values, (std::vector<float>{2, 3, 2}));
}

TEST(Resample, ReplicatesAndCrops) {
  TestTensor<float> x({3}, {1, 2, 3}), out({4});
  ThreadPool pool(1);
  resample(x.view(), {replicating_taps(3, -1, 2)}, out.view(), pool);
  EXPECT_EQ(out.values, (std::vector<float>{2, 3, 3, 3}));
}

TEST(Resample, NearestDoesNotSpreadInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  TestTensor<float> x({2}, {infinity, 1}), out({4});
  ThreadPool pool(1);
  resample(x.view(), {nearest_taps(2, 4, 0)}, out.view(), pool);
  EXPECT_EQ(out.values, (std::vector<float>{infinity, infinity, 1, 1}));
}

TEST(Resample, LinearKeepsCornersWhenAligned) {
  TestTensor<float> x({2}, {0, 3}), out({4});
  ThreadPool pool(1);
  resample(x.view(), {linear_taps(2, 4, 0, true)}, out.view(), pool);
  EXPECT_FLOAT_EQ(out.values[1], 1);
  EXPECT_EQ(out.values[3], 3);
  resample(x.view(), {linear_taps(2, 4, 0, false)}, out.view(), pool);
  EXPECT_EQ(out.values, (std::vector<float>{0, 0.75F, 2.25F, 3}));
}

}  // namespace
}  // namespace tessera::kernels
