#include <gtest/gtest.h>

#include "tessera/ops/run_op_for_test.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;
using Floats = std::vector<float>;

Attrs transposed(Ints stride, Ints dilation, Ints output_padding) {
  return {{"stride", stride},
          {"dilation", dilation},
          {"transposed", true},
          {"output_padding", output_padding}};
}

TEST(Convolution, TransposedSpreadsItsInput) {
  const auto x = floats({1, 1, 2}, {1, 10});
  const auto w = floats({1, 1, 3}, {1, 2, 3});
  const auto bias = floats({1}, {100});
  const OpRun run("convolution", {x, w, bias}, transposed({2}, {1}, {1}));
  EXPECT_EQ(run[0].elements<float>(), (Floats{101, 102, 113, 120, 130, 100}));
}

// More output padding than the stride: a plain convolution of the result has one place more.
TEST(Convolution, TransposedWithDilationKeepsItsGradientsShape) {
  const auto x = floats({1, 1, 2}, {1, 10});
  const auto w = floats({1, 1, 2}, {1, 2});
  const OpRun forward("convolution", {x, w}, transposed({1}, {3}, {2}));
  ASSERT_EQ(forward[0].elements<float>(), (Floats{1, 10, 0, 2, 20, 0, 0}));
  const auto ones = floats({1, 1, 7}, {1, 0, 0, 5, 0, 0, 0});
  const OpRun backward("convolution_backward", {ones, x, w}, transposed({1}, {3}, {2}));
  EXPECT_EQ(backward[0].elements<float>(), (Floats{11, 0}));
  EXPECT_EQ(backward[1].elements<float>(), (Floats{1, 5}));
}

TEST(ConvolutionBackward, MakesOnlyWhatIsAskedFor) {
  const auto x = floats({1, 1, 3}, {1, 2, 3});
  const auto w = floats({1, 1, 2}, {1, -1});
  const auto grad = floats({1, 1, 2}, {1, 10});
  const OpRun run("convolution_backward", {grad, x, w}, {{"output_mask", Ints{0, 1, 1}}});
  EXPECT_FALSE(run[0].present);
  EXPECT_EQ(run[1].elements<float>(), (Floats{21, 32}));
  EXPECT_EQ(run[2].elements<float>(), Floats{11});
  EXPECT_EQ(run.ran(), (std::vector<std::string>{"conv_weight_grad", "sum"}));
}

TEST(Convolution, SaysWhatDoesNotFit) {
  const auto x = floats({1, 2, 3}, {1, 2, 3, 4, 5, 6});
  const auto narrow = floats({1, 1, 2}, {1, -1});
  const auto wide = floats({1, 2, 4}, Floats(8, 1));
  EXPECT_THROW(OpRun("convolution", {x, narrow}), Error);
  EXPECT_THROW(OpRun("convolution", {x, wide}), Error);
  EXPECT_THROW(OpRun("convolution", {x, wide}, {{"stride", Ints{0}}, {"padding", Ints{1}}}), Error);
}

}  // namespace
}  // namespace tessera
