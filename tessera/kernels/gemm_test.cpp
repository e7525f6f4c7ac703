#include "tessera/kernels/gemm.h"

#include <gtest/gtest.h>

#include "tessera/kernels/test_tensor.h"

namespace tessera::kernels {
namespace {

// The patterns are multiples of 1/4, so that every order of summation gives the same bits.
void expect_product(TestTensor<float>& a, TestTensor<float>& b) {
  const int64_t rows = a.view().sizes[0], depth = a.view().sizes[1], cols = b.view().sizes[1];
  const auto sa = a.view().strides, sb = b.view().strides;
  TestTensor<float> out({rows, cols});
  ThreadPool pool(2);
  matmul(a.view(), b.view(), out.view(), pool);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        sum += a.values[static_cast<size_t>(i * sa[0] + k * sa[1])] *
               b.values[static_cast<size_t>(k * sb[0] + j * sb[1])];
      }
      ASSERT_EQ(out.values[static_cast<size_t>(i * cols + j)], sum) << i << ", " << j;
    }
  }
}

TEST(Matmul, IsRightAtTheEdgesOfItsBlocks) {
  for (const Shape& size :
       {Shape{1, 1, 1}, {7, 3, 17}, {6, 256, 16}, {97, 257, 385}, {5, 600, 2}}) {
    auto a = TestTensor<float>::pattern({size[0], size[1]});
    auto b = TestTensor<float>::pattern({size[1], size[2]}, 11);
    expect_product(a, b);
  }
}

TEST(Matmul, TakesTransposedAndBroadcastMatrices) {
  auto values = TestTensor<float>::pattern({40 * 30}).values;
  TestTensor<float> a({30, 40}, {1, 30}, values);
  TestTensor<float> b({40, 20}, {0, 1}, values);
  expect_product(a, b);
}

TEST(Matmul, OfNoDepthIsZero) {
  TestTensor<float> a({2, 0}), b({0, 3}), out({2, 3}, std::vector<float>(6, 9));
  ThreadPool pool(1);
  matmul(a.view(), b.view(), out.view(), pool);
  EXPECT_EQ(out.values, std::vector<float>(6, 0));
}

TEST(PackedColumns, MultiplyAsTheMatrixTheyWere) {
  ThreadPool pool(2);
  for (const Shape& size : {Shape{7, 3, 17}, {13, 300, 40}, {2, 0, 3}}) {
    const int64_t rows = size[0], depth = size[1], cols = size[2];
    auto a = TestTensor<float>::pattern({rows, depth});
    auto b = TestTensor<float>::pattern({depth, cols}, 11);
    TestTensor<float> expected({rows, cols}),
        out({rows, cols}, std::vector<float>(expected.values));
    matmul(a.view(), b.view(), expected.view(), pool);
    const PackedColumns packed(StridedLines(b.values.data(), 1, cols), cols, depth, pool);
    packed.multiply(StridedLines(a.values.data(), depth, 1), {0, rows}, out.values.data(), cols);
    EXPECT_EQ(out.values, expected.values);
  }
}

TEST(Matmul, MultipliesBatchesOfIntegers) {
  TestTensor<int32_t> a({2, 1, 2}, {1, 2, 3, 4}), b({2, 2, 1}, {5, 6, 7, 8}), out({2, 1, 1});
  ThreadPool pool(1);
  matmul(a.view(), b.view(), out.view(), pool);
  EXPECT_EQ(out.values, (std::vector<int32_t>{17, 53}));
}

}  // namespace
}  // namespace tessera::kernels
