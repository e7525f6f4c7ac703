#include <gtest/gtest.h>

#include <cmath>

#include "tessera/base/error.h"
#include "tessera/ops/run_op_for_test.h"

namespace tessera {
namespace {

TEST(Loss, ClassIndexOutsideIsAnError) {
  const HostTensor scores = floats({2, 3}, {-1, -2, -3, -4, -5, -6});
  for (const int32_t wrong : {3, -1, 1000000}) {
    try {
      OpRun("nll_loss_forward", {scores, ints({2}, {0, wrong}), left_out()});
      FAIL() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.message(), fmt::format("class index {} is outside the 3 classes", wrong));
    }
    EXPECT_THROW(OpRun("nll_loss_backward", {floats({}, {1}), scores, ints({2}, {0, wrong}),
                                             left_out(), floats({}, {2})}),
                 Error);
  }
}

TEST(Loss, IgnoredTargetsCountForNothing) {
  const HostTensor scores = floats({2, 3}, {-1, -2, -3, -4, -5, -6});
  const auto one = OpRun("nll_loss_forward", {scores, ints({2}, {-100, 1}), left_out()});
  EXPECT_EQ(one[0].elements<float>()[0], 5);
  EXPECT_EQ(one[1].elements<float>()[0], 1);
  const auto all = OpRun("nll_loss_forward", {scores, ints({2}, {-100, -100}), left_out()});
  EXPECT_TRUE(std::isnan(all[0].elements<float>()[0])) << "the mean of nothing";
  const auto grad = OpRun("nll_loss_backward", {floats({}, {1}), scores, ints({2}, {-100, 1}),
                                                left_out(), floats({}, {1})});
  EXPECT_EQ(grad[0].elements<float>(), (std::vector<float>{0, 0, 0, 0, -1, 0}));
}

TEST(Loss, WeightsWeighTheMean) {
  const HostTensor scores = floats({2, 2}, {-1, -2, -3, -4});
  const auto result = OpRun("nll_loss_forward", {scores, ints({2}, {0, 1}), floats({2}, {1, 3})});
  EXPECT_FLOAT_EQ(result[0].elements<float>()[0], (1 * 1 + 3 * 4) / 4.0F);
  EXPECT_EQ(result[1].elements<float>()[0], 4);
}

TEST(Loss, ShapesOfTargetsAreChecked) {
  const HostTensor scores = floats({2, 2}, {-1, -2, -3, -4});
  EXPECT_THROW(OpRun("nll_loss_forward", {scores, ints({3}, {0, 1, 0}), left_out()}), Error);
  EXPECT_THROW(OpRun("nll_loss_forward", {scores, floats({2}, {0, 1}), left_out()}), Error);
  EXPECT_THROW(OpRun("nll_loss_forward", {scores, ints({2}, {0, 1}), floats({3}, {1, 1, 1})}),
               Error);
}

TEST(Loss, SoftmaxOfLargeScoresDoesNotOverflow) {
  const auto out = OpRun("_softmax", {floats({2}, {1000, 1000})}, {{"dim", int64_t{0}}});
  EXPECT_EQ(out[0].elements<float>(), (std::vector<float>{0.5, 0.5}));
  const auto logs = OpRun("_log_softmax", {floats({2}, {-1000, 0})}, {{"dim", int64_t{0}}});
  EXPECT_EQ(logs[0].elements<float>(), (std::vector<float>{-1000, 0}));
}

TEST(Loss, CrossEntropyOfCertaintyIsCut) {
  const auto out = OpRun("binary_cross_entropy", {floats({2}, {0, 1}), floats({2}, {1, 0})});
  EXPECT_EQ(out[0].elements<float>()[0], 100);
}

TEST(Loss, UnknownReductionIsAnError) {
  EXPECT_THROW(OpRun("mse_loss", {floats({1}, {0}), floats({1}, {0})}, {{"reduction", int64_t{3}}}),
               Error);
}

}  // namespace
}  // namespace tessera
