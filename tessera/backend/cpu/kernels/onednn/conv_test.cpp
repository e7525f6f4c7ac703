#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/kernel_for_test.h"
#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"

#ifdef TESSERA_WITH_ONEDNN
namespace tessera::cpu {
namespace {

struct Case {
  std::string name;
  Shape input, weight;
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups = 1;
  bool bias = true;
};

std::vector<Case> cases() {
  return {
      {"first of the small network", {16, 1, 28, 28}, {5, 1, 3, 3}, {1, 1}, {0, 0}, {1, 1}},
      {"second of the small network", {16, 5, 13, 13}, {12, 5, 5, 5}, {1, 1}, {0, 0}, {1, 1}},
      {"one image", {1, 3, 9, 9}, {4, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {"prime batch", {7, 16, 20, 20}, {32, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {"stride", {4, 8, 17, 15}, {16, 8, 3, 3}, {2, 2}, {1, 1}, {1, 1}, 1, false},
      {"dilation", {4, 8, 17, 15}, {16, 8, 3, 3}, {1, 1}, {2, 2}, {2, 2}, 1, false},
      {"1x1", {4, 24, 14, 14}, {48, 24, 1, 1}, {1, 1}, {0, 0}, {1, 1}},
      {"groups", {4, 8, 10, 10}, {12, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 4},
      {"depthwise", {4, 16, 10, 10}, {16, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 16},
      {"one dimension", {4, 6, 40}, {8, 6, 5}, {2}, {2}, {1}},
      {"three dimensions", {2, 3, 6, 7, 8}, {5, 3, 3, 2, 3}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1}},
      {"uneven", {4, 3, 12, 9}, {6, 3, 5, 2}, {2, 3}, {2, 1}, {1, 1}},
  };
}

Attrs attrs_of(const Case& c) {
  return {
      {"stride", c.stride}, {"padding", c.padding}, {"dilation", c.dilation}, {"groups", c.groups}};
}

Shape output_of(const Case& c) {
  Shape shape = {c.input[0], c.weight[0]};
  for (size_t i = 0; i + 2 < c.input.size(); ++i) {
    shape.push_back(
        (c.input[i + 2] + 2 * c.padding[i] - c.dilation[i] * (c.weight[i + 2] - 1) - 1) /
            c.stride[i] +
        1);
  }
  return shape;
}

KernelTrial forward(const Case& c) {
  return {"conv",
          {dense(c.input), dense(c.weight), c.bias ? dense({c.weight[0]}) : Geometry{}},
          attrs_of(c)};
}

KernelTrial input_grad(const Case& c) {
  Attrs attrs = attrs_of(c);
  attrs.set("input_size", std::vector<int64_t>(c.input.begin() + 1, c.input.end()));
  return {"conv_input_grad", {dense(output_of(c)), dense(c.weight)}, attrs};
}

KernelTrial weight_grad(const Case& c) {
  Attrs attrs = attrs_of(c);
  attrs.set("kernel_size", std::vector<int64_t>(c.weight.begin() + 2, c.weight.end()));
  return {"conv_weight_grad", {dense(output_of(c)), dense(c.input)}, attrs};
}

// Entries that come before the ones that are tried here.
const std::string before_onednn = "batch8,winograd_4,winograd_2,few_channels";
const std::string before_plain =
    before_onednn + ",onednn_channels,onednn_channels_input_grad,onednn_channels_weight_grad";

using Conv = NeedsWholeMachine;

void expect_good(const KernelTrial& trial, const std::string& kernel, const Case& c) {
  EXPECT_EQ(trial.kernel(), kernel) << c.name;
  EXPECT_LT(trial.error(), 5e-6) << kernel << ", " << c.name;
  const auto one = trial.result(1);
  EXPECT_EQ(trial.result(2), one) << kernel << ", " << c.name;
  EXPECT_EQ(trial.result(3), one) << kernel << ", " << c.name;
}

TEST_F(Conv, AgreesWithTheReferenceForAnyNumberOfThreads) {
  const WithoutKernels others(before_plain);
  for (const Case& c : cases()) {
    expect_good(forward(c), "onednn_conv", c);
    expect_good(input_grad(c), "onednn_conv_input_grad", c);
    expect_good(weight_grad(c), "onednn_conv_weight_grad", c);
  }
}

TEST_F(Conv, AgreesWithTheReferenceInTheChannelsLayout) {
  const WithoutKernels others(before_onednn);
  const std::vector<Case> in_groups_of_eight = {
      {"first layer", {4, 3, 20, 20}, {64, 3, 7, 7}, {2, 2}, {3, 3}, {1, 1}, 1, false},
      {"prime batch", {7, 16, 20, 20}, {32, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {"stride", {4, 8, 17, 15}, {16, 8, 3, 3}, {2, 2}, {1, 1}, {1, 1}, 1, false},
      {"dilation", {4, 8, 17, 15}, {16, 8, 3, 3}, {1, 1}, {2, 2}, {2, 2}, 1, false},
      {"1x1", {4, 24, 14, 14}, {48, 24, 1, 1}, {1, 1}, {0, 0}, {1, 1}},
      {"tiny images", {3, 64, 2, 2}, {64, 64, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {"one image, cut by channels", {1, 64, 32, 32}, {128, 64, 2, 2}, {2, 2}, {0, 0}, {1, 1}},
      {"three images, cut by channels", {3, 64, 20, 30}, {64, 64, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {"depthwise", {4, 16, 10, 10}, {16, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 16},
      {"groups", {4, 32, 10, 10}, {32, 8, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 4},
  };
  for (const Case& c : in_groups_of_eight) {
    expect_good(forward(c), "onednn_channels", c);
    if (c.input[1] >= 8) expect_good(input_grad(c), "onednn_channels_input_grad", c);
    expect_good(weight_grad(c), "onednn_channels_weight_grad", c);
  }
}

TEST_F(Conv, ReadsImagesOfAnyStrides) {
  const WithoutKernels others(before_onednn);
  const Case c{"channels last", {8, 6, 11, 12}, {9, 6, 3, 3}, {1, 1}, {1, 1}, {1, 1}};
  const Geometry channels_last{c.input, {6 * 11 * 12, 1, 12 * 6, 6}, 0};
  const KernelTrial trial("conv", {channels_last, dense(c.weight), Geometry{}}, attrs_of(c));
  EXPECT_EQ(trial.kernel(), "onednn_conv");
  EXPECT_LT(trial.error(), 5e-6);
}

TEST_F(Conv, BroadcastImagesGoToTheReference) {
  const WithoutKernels others(before_onednn);
  const Case c{"broadcast", {8, 6, 11, 12}, {8, 6, 3, 3}, {1, 1}, {1, 1}, {1, 1}};
  const Geometry broadcast{c.input, {0, 11 * 12, 12, 1}, 0};
  EXPECT_EQ(KernelTrial("conv", {broadcast, dense(c.weight), Geometry{}}, attrs_of(c)).kernel(),
            "reference");
}

}  // namespace
}  // namespace tessera::cpu
#endif
