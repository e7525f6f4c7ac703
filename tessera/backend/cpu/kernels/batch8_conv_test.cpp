#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/batch_trial_for_test.h"
#include "tessera/base/cpu_level.h"

namespace tessera::cpu {
namespace {

struct Case {
  std::string name;
  Shape input, weight;
  std::vector<int64_t> stride = {1, 1}, padding = {0, 0};
  bool bias = true;
};

std::vector<Case> cases() {
  return {
      {"first of the small network", {16, 1, 28, 28}, {5, 1, 3, 3}},
      {"second of the small network", {16, 5, 13, 13}, {12, 5, 5, 5}},
      {"one group", {8, 5, 13, 13}, {12, 5, 5, 5}},
      {"many groups", {72, 2, 9, 9}, {3, 2, 3, 3}},
      {"padding", {8, 3, 12, 11}, {4, 3, 3, 3}, {1, 1}, {1, 1}},
      {"padding on one side", {8, 3, 12, 11}, {7, 3, 5, 3}, {1, 1}, {2, 0}, false},
      {"more padding than kernel", {8, 2, 5, 4}, {3, 2, 3, 3}, {1, 1}, {4, 3}},
      {"stride", {16, 3, 17, 15}, {8, 3, 3, 3}, {2, 2}, {1, 1}},
      {"stride without padding", {8, 3, 16, 15}, {5, 3, 4, 3}, {2, 2}, {0, 0}},
      {"stride larger than kernel", {8, 3, 11, 12}, {5, 3, 1, 2}, {2, 3}, {0, 0}},
      {"uneven", {8, 3, 12, 9}, {6, 3, 5, 2}, {2, 1}, {2, 1}, false},
      {"7x7", {8, 3, 20, 19}, {6, 3, 7, 7}, {2, 2}, {3, 3}},
      {"1x1", {8, 16, 7, 6}, {11, 16, 1, 1}},
      {"one pixel", {8, 4, 3, 3}, {13, 4, 3, 3}},
      {"a narrow image", {8, 2, 20, 1}, {3, 2, 3, 1}, {1, 1}, {1, 0}},
      {"16 channels", {8, 16, 10, 10}, {15, 16, 3, 3}, {1, 1}, {1, 1}},
  };
}

Attrs attrs_of(const Case& c) {
  return {{"stride", c.stride},
          {"padding", c.padding},
          {"dilation", std::vector<int64_t>{1, 1}},
          {"groups", int64_t{1}}};
}

Shape output_of(const Case& c) {
  Shape shape = {c.input[0], c.weight[0]};
  for (size_t i = 0; i < 2; ++i) {
    shape.push_back((c.input[i + 2] + 2 * c.padding[i] - c.weight[i + 2]) / c.stride[i] + 1);
  }
  return shape;
}

BatchTrial forward(const Case& c) {
  return {"conv",
          {{c.input, batch_layout}, {c.weight}, {c.bias ? Shape{c.weight[0]} : Shape{}}},
          attrs_of(c),
          {batch_layout}};
}

BatchTrial input_grad(const Case& c, const Shape& grad) {
  Attrs attrs = attrs_of(c);
  attrs.set("input_size", std::vector<int64_t>(c.input.begin() + 1, c.input.end()));
  return {"conv_input_grad", {{grad, batch_layout}, {c.weight}}, attrs, {batch_layout}};
}

BatchTrial weight_grad(const Case& c, const Shape& grad) {
  Attrs attrs = attrs_of(c);
  attrs.set("kernel_size", std::vector<int64_t>(c.weight.begin() + 2, c.weight.end()));
  return {"conv_weight_grad", {{grad, batch_layout}, {c.input, batch_layout}}, attrs, {}};
}

void expect_good(const BatchTrial& trial, const Case& c) {
  ASSERT_EQ(trial.kernel(), "batch8") << c.name;
  EXPECT_LT(trial.error(), 5e-6) << c.name;
  EXPECT_TRUE(trial.same_bits_for_any_threads()) << c.name;
}

class Batch8Conv : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_avx2()) GTEST_SKIP() << "needs AVX2";
  }
};

TEST_F(Batch8Conv, AgreesWithTheReferenceForAnyNumberOfThreads) {
  for (const Case& c : cases()) expect_good(forward(c), c);
}

TEST_F(Batch8Conv, InputGradAgreesWithTheReferenceForAnyNumberOfThreads) {
  for (const Case& c : cases()) expect_good(input_grad(c, output_of(c)), c);
}

TEST_F(Batch8Conv, WeightGradAgreesWithTheReferenceForAnyNumberOfThreads) {
  for (const Case& c : cases()) expect_good(weight_grad(c, output_of(c)), c);
}

TEST_F(Batch8Conv, GradientsMayCoverFewerPlaces) {
  const Case c{"fewer places", {8, 3, 16, 15}, {5, 3, 3, 3}, {2, 2}, {1, 1}};
  Shape grad = output_of(c);
  --grad[2];
  --grad[3];
  expect_good(input_grad(c, grad), c);
  expect_good(weight_grad(c, grad), c);
}

std::vector<Layout> wanted(const Case& c, const Attrs& attrs) {
  const KernelOperand inputs[] = {{DType::f32, dense(c.input)}, {DType::f32, dense(c.weight)}};
  const KernelOperand output{DType::f32, dense(output_of(c))};
  for (const KernelEntry& entry : batch_entries()) {
    if (entry.op == "conv") return entry.wants({op("conv"), attrs, inputs, {&output, 1}});
  }
  return {};
}

TEST_F(Batch8Conv, WantsGroupsOfEightSmallImagesOfFewChannels) {
  const Case small{"small", {16, 5, 13, 13}, {12, 5, 5, 5}};
  EXPECT_EQ(wanted(small, attrs_of(small)),
            (std::vector<Layout>{batch_layout, plain_layout, batch_layout}));
  const Case odd_batch{"odd batch", {12, 5, 13, 13}, {12, 5, 5, 5}};
  EXPECT_TRUE(wanted(odd_batch, attrs_of(odd_batch)).empty());
  const Case many_channels{"many channels", {16, 32, 13, 13}, {32, 32, 3, 3}};
  EXPECT_TRUE(wanted(many_channels, attrs_of(many_channels)).empty());
  const Case large{"large", {8, 3, 300, 300}, {8, 3, 3, 3}};
  EXPECT_TRUE(wanted(large, attrs_of(large)).empty());
  Attrs dilated = attrs_of(small);
  dilated.set("dilation", std::vector<int64_t>{2, 2});
  EXPECT_TRUE(wanted(small, dilated).empty());
}

}  // namespace
}  // namespace tessera::cpu
