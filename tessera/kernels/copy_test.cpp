#include "tessera/kernels/copy.h"

#include <gtest/gtest.h>

#include "tessera/kernels/test_tensor.h"

namespace tessera::kernels {
namespace {

TEST(Copy, TransposesInPieces) {
  constexpr int64_t rows = 301, cols = 407;
  TestTensor<int32_t> from({cols, rows}, {1, cols}, std::vector<int32_t>(rows * cols));
  for (size_t i = 0; i < from.values.size(); ++i) from.values[i] = static_cast<int32_t>(i);
  TestTensor<int32_t> to({cols, rows});
  ThreadPool pool(3);
  copy(from.view(), to.view(), pool);
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r) {
      ASSERT_EQ(to.values[static_cast<size_t>(c * rows + r)], r * cols + c);
    }
  }
}

TEST(Copy, FollowsNegativeAndZeroStrides) {
  TestTensor<float> x({3}, {1, 2, 3});
  TestTensor<float> to({2, 3});
  ThreadPool pool(1);
  const Window reversed(x.view(), {2, 3}, {0, -1}, 2);
  copy(reversed.view(), to.view(), pool);
  EXPECT_EQ(to.values, (std::vector<float>{3, 2, 1, 3, 2, 1}));
}

TEST(Copy, WritesOnlyTheWindow) {
  TestTensor<float> x({2, 2}, {1, 2, 3, 4});
  TestTensor<float> to({2, 4});
  ThreadPool pool(1);
  const Window window(to.view(), {2, 2}, {4, 2}, 1);
  copy(x.view(), window.view(), pool);
  EXPECT_EQ(to.values, (std::vector<float>{0, 1, 0, 2, 0, 3, 0, 4}));
}

TEST(Fill, ConvertsToTheType) {
  TestTensor<uint8_t> bytes({2});
  ThreadPool pool(1);
  fill(-1, bytes.view(), pool);
  EXPECT_EQ(bytes.values, (std::vector<uint8_t>{255, 255}));
}

TEST(Dense, CopiesOnlyWhatIsNotDense) {
  TestTensor<float> x({2, 2}, {1, 2, 3, 4});
  TestTensor<float> turned({2, 2}, {1, 2}, {1, 2, 3, 4});
  ThreadPool pool(1);
  EXPECT_EQ(Dense(x.view(), pool).view().data, x.view().data);
  const Dense copied(turned.view(), pool);
  EXPECT_EQ(std::vector<float>(copied.as<float>(), copied.as<float>() + 4),
            (std::vector<float>{1, 3, 2, 4}));
}

}  // namespace
}  // namespace tessera::kernels
