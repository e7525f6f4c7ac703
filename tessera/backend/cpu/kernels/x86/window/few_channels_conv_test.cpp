#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/x86/batch8/batch_trial_for_test.h"
#include "tessera/backend/cpu/target_for_test.h"

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

std::vector<Case> plain_cases() {
  return {
      {"first of the small network", {1, 1, 28, 28}, {5, 1, 3, 3}},
      {"second of the small network", {1, 5, 13, 13}, {12, 5, 5, 5}},
      {"some images", {3, 5, 13, 13}, {12, 5, 5, 5}},
      {"padding", {2, 3, 12, 11}, {4, 3, 3, 3}, {1, 1}, {1, 1}},
      {"padding on one side", {2, 3, 12, 30}, {7, 3, 5, 3}, {1, 1}, {2, 0}, false},
      {"more padding than kernel", {2, 2, 5, 4}, {3, 2, 3, 3}, {1, 1}, {4, 3}},
      {"7x7", {1, 3, 20, 51}, {6, 3, 7, 7}, {1, 1}, {3, 3}},
      {"1x1", {1, 16, 7, 6}, {3, 16, 1, 1}},
      {"one pixel", {2, 4, 3, 3}, {13, 4, 3, 3}},
      {"a narrow image", {1, 2, 20, 1}, {3, 2, 3, 1}, {1, 1}, {1, 0}},
      {"a wide image", {1, 1, 6, 400}, {8, 1, 5, 5}, {1, 1}, {2, 2}},
      {"bands of a large image", {1, 2, 150, 301}, {4, 2, 3, 3}, {1, 1}, {1, 1}},
      {"even kernel", {1, 3, 9, 16}, {5, 3, 2, 4}, {1, 1}, {1, 2}},
  };
}

BatchTrial forward(const Case& c, const Layout& layout = batch_layout) {
  return {"conv",
          {{c.input, layout}, {c.weight}, {c.bias ? Shape{c.weight[0]} : Shape{}}},
          attrs_of(c),
          {layout}};
}

BatchTrial input_grad(const Case& c, const Shape& grad, const Layout& layout = batch_layout) {
  Attrs attrs = attrs_of(c);
  attrs.set("input_size", std::vector<int64_t>(c.input.begin() + 1, c.input.end()));
  return {"conv_input_grad", {{grad, layout}, {c.weight}}, attrs, {layout}};
}

BatchTrial weight_grad(const Case& c, const Shape& grad, const Layout& layout = batch_layout) {
  Attrs attrs = attrs_of(c);
  attrs.set("kernel_size", std::vector<int64_t>(c.weight.begin() + 2, c.weight.end()));
  return {"conv_weight_grad", {{grad, layout}, {c.input, layout}}, attrs, {}};
}

void expect_good(const BatchTrial& trial, const Case& c, const std::string& kernel = "batch8") {
  ASSERT_EQ(trial.kernel(), kernel) << c.name;
  EXPECT_LT(trial.error(), 5e-6) << c.name;
  EXPECT_TRUE(trial.same_bits_for_any_threads()) << c.name;
}

class FewChannelsConv : public NeedsAvx2 {};

TEST_F(FewChannelsConv, AgreesWithTheReferenceForAnyNumberOfThreads) {
  for (const Case& c : cases()) expect_good(forward(c), c);
  for (const Case& c : plain_cases()) expect_good(forward(c, plain_layout), c, "few_channels");
}

TEST_F(FewChannelsConv, InputGradAgreesWithTheReferenceForAnyNumberOfThreads) {
  for (const Case& c : cases()) expect_good(input_grad(c, output_of(c)), c);
  for (const Case& c : plain_cases()) {
    expect_good(input_grad(c, output_of(c), plain_layout), c, "few_channels");
  }
}

TEST_F(FewChannelsConv, WeightGradAgreesWithTheReferenceForAnyNumberOfThreads) {
  for (const Case& c : cases()) expect_good(weight_grad(c, output_of(c)), c);
  for (const Case& c : plain_cases()) {
    expect_good(weight_grad(c, output_of(c), plain_layout), c, "few_channels");
  }
}

// Beyond the edges of a row lie other rows, which must not matter whatever they hold.
TEST_F(FewChannelsConv, EdgesStayApart) {
  const Case c{"a value that is none", {1, 1, 4, 11}, {2, 1, 3, 3}, {1, 1}, {1, 1}, false};
  std::vector<float> values(4 * 11, 1.0F);
  values[11] = NAN;  // the first of the second row
  const BatchTrial trial("conv", {{c.input, {}, DType::f32, values}, {c.weight}, {}}, attrs_of(c),
                         {});
  EXPECT_EQ(trial.kernel(), "few_channels");
  const auto result = trial.result(1)[0];
  for (size_t i = 0; i < result.size(); ++i) {
    const bool meets = i % 44 / 11 <= 2 && i % 11 <= 1;
    EXPECT_EQ(std::isnan(result[i]), meets) << i;
  }
}

std::vector<Layout> wanted(const Case& c, const Attrs& attrs) {
  const KernelOperand inputs[] = {{DType::f32, dense(c.input)}, {DType::f32, dense(c.weight)}};
  const KernelOperand output{DType::f32, dense(output_of(c))};
  const auto entries = all_entries("conv");
  const auto batch8 = std::find_if(entries.begin(), entries.end(),
                                   [](const auto* entry) { return entry->name == "batch8"; });
  return entry_wants(**batch8, {op("conv"), attrs, inputs, {&output, 1}, target_for_test()});
}

TEST_F(FewChannelsConv, WantsGroupsOfEightSmallImagesOfFewChannels) {
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
