#include "tessera/kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/kernels/test_tensor.h"

namespace tessera::kernels {
namespace {

TEST(BatchNorm, UpdatesRunningStatisticsWithTheUnbiasedVariance) {
  TestTensor<float> x({4, 1}, {1, 3, 5, 7}), mean({1}, {10}), var({1}, {2});
  TestTensor<float> out({4, 1}), save_mean({1}), save_invstd({1});
  BatchNorm norm{.input = x.view(),
                 .weight = no_tensor(),
                 .bias = no_tensor(),
                 .running_mean = mean.view(),
                 .running_var = var.view(),
                 .training = true,
                 .momentum = 0.5,
                 .eps = 0,
                 .out = out.view(),
                 .save_mean = save_mean.view(),
                 .save_invstd = save_invstd.view(),
                 .new_mean = mean.view(),
                 .new_var = var.view()};
  ThreadPool pool(1);
  batch_norm(norm, pool);
  EXPECT_EQ(mean.values[0], 7);                         // (10 + 4) / 2
  EXPECT_FLOAT_EQ(var.values[0], (2 + 20.0F / 3) / 2);  // squares sum to 20
  EXPECT_FLOAT_EQ(save_invstd.values[0], 1 / std::sqrt(5.0F));
  EXPECT_FLOAT_EQ(out.values[3], 3 / std::sqrt(5.0F));
}

// A small spread around a large mean: lost when squares are summed in float.
TEST(LayerNorm, KeepsSmallSpreadsAroundLargeMeans) {
  TestTensor<float> x({1, 4096}), out({1, 4096}), mean({1, 1}), rstd({1, 1});
  for (size_t i = 0; i < 4096; ++i) x.values[i] = i % 2 == 0 ? 10000.0F : 10000.5F;
  ThreadPool pool(1);
  layer_norm({.input = x.view(),
              .weight = no_tensor(),
              .bias = no_tensor(),
              .eps = 0,
              .out = out.view(),
              .mean = mean.view(),
              .rstd = rstd.view()},
             pool);
  EXPECT_FLOAT_EQ(rstd.values[0], 4);
  EXPECT_EQ(mean.values[0], 10000.25F);
  EXPECT_EQ(out.values[0], -1);
}

// Normalised rows do not change with the input's mean and scale: their gradient has no part there.
TEST(LayerNorm, GradientIsOrthogonalToMeanAndScale) {
  auto x = TestTensor<float>::pattern({3, 50});
  auto grad = TestTensor<float>::pattern({3, 50}, 7);
  TestTensor<float> out({3, 50}), mean({3, 1}), rstd({3, 1}), dx({3, 50}), dw({50}), db({50});
  ThreadPool pool(2);
  layer_norm({.input = x.view(),
              .weight = no_tensor(),
              .bias = no_tensor(),
              .eps = 0,
              .out = out.view(),
              .mean = mean.view(),
              .rstd = rstd.view()},
             pool);
  layer_norm_backward({.grad = grad.view(),
                       .input = x.view(),
                       .mean = mean.view(),
                       .rstd = rstd.view(),
                       .weight = no_tensor(),
                       .grad_input = dx.view(),
                       .grad_weight = dw.view(),
                       .grad_bias = db.view()},
                      pool);
  for (size_t row = 0; row < 3; ++row) {
    double sum = 0, dot = 0;
    for (size_t i = row * 50; i < (row + 1) * 50; ++i) {
      sum += dx.values[i];
      dot += dx.values[i] * out.values[i];
    }
    EXPECT_NEAR(sum, 0, 1e-4);
    EXPECT_NEAR(dot, 0, 1e-4);
  }
  EXPECT_FLOAT_EQ(db.values[9], grad.values[9] + grad.values[59] + grad.values[109]);
}

// One group is a layer norm over the image, as many groups as channels a norm of each plane.
TEST(GroupNorm, NormalisesEachGroupAlone) {
  TestTensor<float> x({1, 2, 2}, {1, 3, 10, 30}), out({1, 2, 2}), mean({1, 2}), rstd({1, 2});
  ThreadPool pool(1);
  group_norm({.input = x.view(),
              .weight = no_tensor(),
              .bias = no_tensor(),
              .batch = 1,
              .channels = 2,
              .groups = 2,
              .eps = 0,
              .out = out.view(),
              .mean = mean.view(),
              .rstd = rstd.view()},
             pool);
  EXPECT_EQ(out.values, (std::vector<float>{-1, 1, -1, 1}));
  EXPECT_EQ(mean.values, (std::vector<float>{2, 20}));
}

}  // namespace
}  // namespace tessera::kernels
