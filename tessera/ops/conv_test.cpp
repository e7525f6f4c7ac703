#include <gtest/gtest.h>

#include "tessera/ops/test_run.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;
using Values = std::vector<double>;

Attrs transposed(Ints stride, Ints dilation, Ints output_padding) {
  return {{"stride", stride},
          {"dilation", dilation},
          {"transposed", true},
          {"output_padding", output_padding}};
}

TEST(Convolution, TransposedSpreadsItsInput) {
  const auto x = RunTensor::reals({1, 1, 2}, {1, 10});
  const auto w = RunTensor::reals({1, 1, 3}, {1, 2, 3});
  const auto bias = RunTensor::reals({1}, {100});
  const OpRun run("convolution", {x, w, bias}, transposed({2}, {1}, {1}));
  EXPECT_EQ(run.results[0].values(), (Values{101, 102, 113, 120, 130, 100}));
}

// More output padding than the stride: a plain convolution of the result has one place more.
TEST(Convolution, TransposedWithDilationKeepsItsGradientsShape) {
  const auto x = RunTensor::reals({1, 1, 2}, {1, 10});
  const auto w = RunTensor::reals({1, 1, 2}, {1, 2});
  const OpRun forward("convolution", {x, w}, transposed({1}, {3}, {2}));
  ASSERT_EQ(forward.results[0].values(), (Values{1, 10, 0, 2, 20, 0, 0}));
  const auto ones = RunTensor::reals({1, 1, 7}, {1, 0, 0, 5, 0, 0, 0});
  const OpRun backward("convolution_backward", {ones, x, w}, transposed({1}, {3}, {2}));
  EXPECT_EQ(backward.results[0].values(), (Values{11, 0}));
  EXPECT_EQ(backward.results[1].values(), (Values{1, 5}));
}

TEST(ConvolutionBackward, MakesOnlyWhatIsAskedFor) {
  const auto x = RunTensor::reals({1, 1, 3}, {1, 2, 3});
  const auto w = RunTensor::reals({1, 1, 2}, {1, -1});
  const auto grad = RunTensor::reals({1, 1, 2}, {1, 10});
  const OpRun run("convolution_backward", {grad, x, w}, {{"output_mask", Ints{0, 1, 1}}});
  EXPECT_FALSE(run.results[0].present);
  EXPECT_EQ(run.results[1].values(), (Values{21, 32}));
  EXPECT_EQ(run.results[2].values(), Values{11});
  EXPECT_EQ(run.ran, (std::vector<std::string>{"conv_weight_grad", "sum"}));
}

TEST(Convolution, SaysWhatDoesNotFit) {
  const auto x = RunTensor::reals({1, 2, 3}, {1, 2, 3, 4, 5, 6});
  const auto narrow = RunTensor::reals({1, 1, 2}, {1, -1});
  const auto wide = RunTensor::reals({1, 2, 4}, Values(8, 1));
  EXPECT_THROW(OpRun("convolution", {x, narrow}), Error);
  EXPECT_THROW(OpRun("convolution", {x, wide}), Error);
  EXPECT_THROW(OpRun("convolution", {x, wide}, {{"stride", Ints{0}}, {"padding", Ints{1}}}), Error);
}

}  // namespace
}  // namespace tessera
