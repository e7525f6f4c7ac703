// Reference kernels keep to the level of the threads they run on. Which code ran shows in the last
// bits: AVX2 multiplies and adds with one rounding, portable code on the same machine with two.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tessera/kernels/conv.h"
#include "tessera/kernels/ctc.h"
#include "tessera/kernels/gemm.h"
#include "tessera/kernels/rnn.h"
#include "tessera/kernels/test_tensor.h"

namespace tessera::kernels {
namespace {

using Floats = TestTensor<float>;

Floats random_tensor(Shape shape, uint32_t seed) {
  Floats tensor(std::move(shape));
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& value : tensor.values) value = uniform(random);
  return tensor;
}

class Levels : public testing::Test {
 protected:
  void SetUp() override {
    if (machine_level() == CpuLevel::portable) GTEST_SKIP() << "this machine has one level";
  }

  ThreadPool portable{1, CpuLevel::portable}, fast{1, CpuLevel::avx2};
};

TEST_F(Levels, OfProducts) {
  constexpr int64_t rows = 9, depth = 50, cols = 21;
  Floats a = random_tensor({rows, depth}, 1), b = random_tensor({depth, cols}, 2);
  Floats plain({rows, cols}), fused({rows, cols});
  matmul(a.view(), b.view(), plain.view(), portable);
  matmul(a.view(), b.view(), fused.view(), fast);

  Floats two_roundings({rows, cols}), one_rounding({rows, cols});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      float two = 0, one = 0;
      for (int64_t k = 0; k < depth; ++k) {
        const float x = a.values[static_cast<size_t>(i * depth + k)];
        const float y = b.values[static_cast<size_t>(k * cols + j)];
        const volatile float product = x * y;
        two += product;
        one = std::fma(x, y, one);
      }
      two_roundings.values[static_cast<size_t>(i * cols + j)] = two;
      one_rounding.values[static_cast<size_t>(i * cols + j)] = one;
    }
  }
  EXPECT_EQ(plain.values, two_roundings.values);
  EXPECT_EQ(fused.values, one_rounding.values);
  EXPECT_NE(plain.values, fused.values);
}

TEST_F(Levels, OfConvolutions) {
  Floats input = random_tensor({2, 3, 9, 9}, 3), weight = random_tensor({5, 3, 3, 3}, 4);
  const ConvParams params{.stride = {1, 1}, .padding = {0, 0}, .dilation = {1, 1}};
  const auto result = [&](ThreadPool& pool) {
    Floats out({2, 5, 7, 7});
    conv(input.view(), weight.view(), no_tensor(), params, out.view(), pool);
    return out.values;
  };
  EXPECT_NE(result(portable), result(fast));
}

TEST_F(Levels, OfRecurrentLayers) {
  constexpr int64_t time = 6, batch = 3, hidden = 19;
  Floats projected = random_tensor({time, batch, hidden}, 5),
         h0 = random_tensor({batch, hidden}, 6);
  Floats weight = random_tensor({hidden, hidden}, 7);
  const auto result = [&](ThreadPool& pool) {
    Floats output({time, batch, hidden}), hn({batch, hidden});
    rnn({.projected = projected.view(),
         .h0 = h0.view(),
         .weight = weight.view(),
         .bias_ih = no_tensor(),
         .bias_hh = no_tensor(),
         .output = output.view(),
         .hn = hn.view()},
        pool);
    return output.values;
  };
  EXPECT_NE(result(portable), result(fast));
}

TEST_F(Levels, OfAlignments) {
#ifndef NDEBUG
  GTEST_SKIP() << "only optimised code multiplies and adds in one";
#endif
  constexpr int64_t time = 40, batch = 4, classes = 7;
  Floats log_probs = random_tensor({time, batch, classes}, 8);
  for (float& value : log_probs.values) value -= 2;
  TestTensor<int32_t> targets({batch, 3}, {1, 2, 3, 4, 5, 6, 1, 1, 2, 6, 5, 4});
  TestTensor<int32_t> times({batch}, {40, 39, 35, 40}), labels({batch}, {3, 3, 3, 2});
  const auto result = [&](ThreadPool& pool) {
    Floats grad({time, batch, classes}), factors({batch}, {1, 1, 1, 1});
    ctc_loss_backward({.log_probs = log_probs.view(),
                       .targets = targets.view(),
                       .input_lengths = times.view(),
                       .target_lengths = labels.view()},
                      factors.view(), grad.view(), pool);
    return grad.values;
  };
  EXPECT_NE(result(portable), result(fast));
}

}  // namespace
}  // namespace tessera::kernels
