#include "tessera/backend/cpu/kernels/contraction_map.h"

#include <fmt/format.h>

#include "tessera/backend/cpu/kernels/kernel_for_test.h"
#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/ir/text.h"

namespace tessera::cpu {
namespace {

using ContractionMap = NeedsAvx2;
using Ints = std::vector<int64_t>;

Attr fused_body(std::string_view text) { return body_attr(parse_body(text)); }

void expect_agrees(const KernelTrial& trial, const std::string& kernel) {
  EXPECT_EQ(trial.kernel(), kernel);
  EXPECT_LT(trial.error(), 2e-5);
  const auto one = trial.result(1);
  for (const int threads : {2, 3}) {
    const auto more = trial.result(threads);
    EXPECT_EQ(std::memcmp(one.data(), more.data(), one.size() * sizeof(float)), 0);
  }
}

// --- matrix products ----------------------------------------------------------------------------

struct Product {
  int64_t rows, columns, depth;
};

TEST_F(ContractionMap, LinearLayersEndInTheTiles) {
  const Product products[] = {{1, 2, 1},    {1, 10, 40},  {7, 3, 33},    {5, 17, 9},
                              {16, 10, 84}, {64, 96, 80}, {100, 33, 64}, {150, 70, 700}};
  const std::pair<std::string, bool> bodies[] = {{"%0 = add(a0, a1); out %0", true},
                                                 {"%0 = add(a1, a0); %1 = relu(%0); out %1", true},
                                                 {"%0 = relu(a0); out %0", false}};
  for (const auto& [rows, columns, depth] : products) {
    for (const auto& [body, bias] : bodies) {
      for (const bool transposed : {false, true}) {
        SCOPED_TRACE(fmt::format("{}x{}x{} {}", rows, columns, depth, body));
        std::vector<Geometry> operands = {
            dense({rows, depth}),
            transposed ? Geometry{{depth, columns}, {1, depth}, 0} : dense({depth, columns})};
        if (bias) operands.push_back(dense(rows % 2 == 0 ? Shape{columns} : Shape{1, columns}));
        expect_agrees({"matmul_map", operands, {{"body", fused_body(body)}}}, "packed_linear");
      }
    }
  }
}

TEST_F(ContractionMap, ProductsOfBatchesHaveABias) {
  const KernelTrial trial("matmul_map", {dense({3, 20, 30}), dense({3, 30, 40}), dense({1, 1, 40})},
                          {{"body", fused_body("%0 = add(a0, a1); %1 = relu(%0); out %1")}});
  expect_agrees(trial, "packed_linear");
}

// Correct where the tiles cannot do it, although nothing is gained then.
TEST_F(ContractionMap, OtherBodiesFollowTheProduct) {
  const std::string bodies[] = {
      "%0 = add(a0, a1) {alpha = 2.0}; out %0",
      "%0 = add(a0, a1); %1 = relu(a0); %2 = add(%0, %1); out %2",
      "%0 = relu(a0); %1 = add(%0, a1); out %1",
      "%0 = add(a0, a1); %1 = gelu(%0); out %1",
      "%0 = add(a0, a0); %1 = add(%0, a1); out %1",
  };
  for (const std::string& body : bodies) {
    SCOPED_TRACE(body);
    const KernelTrial trial("matmul_map", {dense({40, 30}), dense({30, 50}), dense({50})},
                            {{"body", fused_body(body)}});
    expect_agrees(trial, "packed");
  }
  const Attrs bias = {{"body", fused_body("%0 = add(a0, a1); out %0")}};
  for (const Geometry& other : {dense({40, 50}), dense({40, 1}), Geometry{{50}, {3}, 0}}) {
    expect_agrees({"matmul_map", {dense({40, 30}), dense({30, 50}), other}, bias}, "packed");
  }
  expect_agrees({"matmul_map", {dense({40, 30}), dense({30, 1}), dense({1})}, bias}, "packed");
}

TEST_F(ContractionMap, ProductsStayInTheLayoutOfABatch) {
  const OperatorTrial trial("matmul_map", {{{16, 40}, batch_layout}, {{40, 30}}, {{30}}},
                            {{"body", fused_body("%0 = add(a0, a1); %1 = relu(%0); out %1")}},
                            {batch_layout});
  trial.expect_agrees("batch8", 2e-6);
}

// --- convolutions -------------------------------------------------------------------------------

struct Convolution {
  std::string kernel, kernel_of_grad;
  Shape input, weight;
  Ints stride, padding;
  bool bias = false;
};

std::vector<Convolution> convolutions() {
  return {
      {"winograd_4", "winograd_4", {2, 32, 21, 19}, {48, 32, 3, 3}, {1, 1}, {1, 1}, true},
      {"winograd_4", "winograd_4", {3, 16, 30, 26}, {32, 16, 3, 3}, {1, 1}, {0, 2}},
      {"winograd_4", "winograd_4", {1, 64, 12, 12}, {512, 64, 3, 3}, {1, 1}, {1, 1}},
#ifdef TESSERA_WITH_ONEDNN
      {"onednn_channels",
       "onednn_channels_input_grad",
       {3, 16, 17, 15},
       {24, 16, 3, 3},
       {2, 2},
       {1, 1}},
      {"onednn_channels",
       "onednn_channels_input_grad",
       {1, 64, 28, 28},
       {128, 64, 1, 1},
       {1, 1},
       {0, 0},
       true},
      {"onednn_conv", "onednn_conv_input_grad", {2, 12, 40}, {20, 12, 5}, {2}, {2}, true},
      {"onednn_conv", "onednn_conv_input_grad", {3, 17, 9, 11}, {33, 17, 3, 3}, {2, 2}, {1, 1}},
#endif
  };
}

// A number for each channel, and a tensor of the result's shape.
std::vector<std::pair<std::string, bool>> bodies() {
  return {{"%0 = add(a0, a1); %1 = relu(%0); out %1", false},
          {"%0 = mul(a0, a1); %1 = sigmoid(%0); %2 = mul(a0, %1); out %2", false},
          {"%0 = mul(a0, a1); %1 = add(%0, a2); %2 = relu(%1); out %2", true}};
}

std::vector<Geometry> operands_of_body(const Shape& result, bool whole) {
  Shape numbers(result.size() - 1, 1);
  numbers[0] = result[1];
  std::vector<Geometry> operands = {dense(numbers)};
  if (whole) operands.push_back(dense(result));
  return operands;
}

Attrs attrs_of(const Convolution& c, const std::string& body) {
  return {{"stride", c.stride},
          {"padding", c.padding},
          {"dilation", Ints(c.stride.size(), 1)},
          {"groups", int64_t{1}},
          {"body", fused_body(body)}};
}

Shape output_of(const Convolution& c) {
  Shape shape = {c.input[0], c.weight[0]};
  for (size_t i = 0; i < c.stride.size(); ++i) {
    shape.push_back((c.input[i + 2] + 2 * c.padding[i] - c.weight[i + 2]) / c.stride[i] + 1);
  }
  return shape;
}

TEST_F(ContractionMap, Convolutions) {
  for (const Convolution& c : convolutions()) {
    for (const auto& [body, whole] : bodies()) {
      SCOPED_TRACE(c.kernel + " " + tessera::to_string(c.input) + " " + body);
      std::vector<Geometry> operands = {dense(c.input), dense(c.weight),
                                        c.bias ? dense({c.weight[0]}) : Geometry{}};
      for (const Geometry& one : operands_of_body(output_of(c), whole)) operands.push_back(one);
      expect_agrees({"conv_map", operands, attrs_of(c, body)}, c.kernel);
    }
  }
}

TEST_F(ContractionMap, GradientsByTheInput) {
  for (const Convolution& c : convolutions()) {
    for (const auto& [body, whole] : bodies()) {
      SCOPED_TRACE(c.kernel_of_grad + " " + tessera::to_string(c.input) + " " + body);
      Attrs attrs = attrs_of(c, body);
      attrs.set("input_size", Ints(c.input.begin() + 1, c.input.end()));
      std::vector<Geometry> operands = {dense(output_of(c)), dense(c.weight)};
      for (const Geometry& one : operands_of_body(c.input, whole)) operands.push_back(one);
      expect_agrees({"conv_input_grad_map", operands, attrs}, c.kernel_of_grad);
    }
  }
}

TEST_F(ContractionMap, KernelsOfFewChannelsTakeABody) {
  const std::pair<std::string, Convolution> cases[] = {
      {"batch8", {"", "", {16, 1, 28, 28}, {5, 1, 3, 3}, {1, 1}, {0, 0}, true}},
      {"few_channels", {"", "", {1, 3, 40, 40}, {5, 3, 3, 3}, {1, 1}, {1, 1}, true}},
      {"narrow", {"", "", {1, 16, 40, 40}, {2, 16, 1, 1}, {1, 1}, {0, 0}}}};
  for (const auto& [kernel, c] : cases) {
    std::vector<Geometry> operands = {dense(c.input), dense(c.weight),
                                      c.bias ? dense({c.weight[0]}) : Geometry{}};
    for (const Geometry& one : operands_of_body(output_of(c), true)) operands.push_back(one);
    expect_agrees({"conv_map", operands, attrs_of(c, bodies()[2].first)}, kernel);
  }
}

TEST_F(ContractionMap, SeveralResults) {
  const OperatorTrial trial(
      "conv_map",
      {{{2, 32, 21, 19}, channels_layout},
       {{48, 32, 3, 3}, weights_layout},
       {{48}},
       {{48, 1, 1}},
       {{1}}},
      {{"stride", Ints{1, 1}},
       {"padding", Ints{1, 1}},
       {"dilation", Ints{1, 1}},
       {"body",
        fused_body("%0 = add(a0, a1); %1 = mul(%0, a2); %2 = gt(%1, 0.0) : bool; out %1, %0, %2")}},
      {channels_layout, channels_layout, channels_layout});
  const auto got = trial.result(1), wanted = trial.expected();
  EXPECT_EQ(trial.kernel(), "winograd_4");
  for (const size_t i : {0, 1}) {
    const auto* a = reinterpret_cast<const float*>(got[i].data());
    const auto* b = reinterpret_cast<const float*>(wanted[i].data());
    for (size_t k = 0; k < got[i].size() / sizeof(float); ++k) ASSERT_NEAR(a[k], b[k], 1e-4);
  }
  EXPECT_EQ(trial.result(2), got);
  EXPECT_EQ(trial.result(3), got);
}

// What pays, by the size of the result and of what else the body reads.
TEST_F(ContractionMap, SaysWhatPays) {
  const auto answer = [](EpilogueKind epilogue, const std::string& op_name, const Shape& result,
                         const Shape& other) {
    const Attrs attrs = {{"body", fused_body("%0 = add(a0, a1); out %0")}};
    std::vector<KernelOperand> inputs(operand_specs(op(op_name)).size(), {DType::f32, {}});
    inputs.back().geometry = dense(other);
    const std::vector<KernelOperand> outputs = {{DType::f32, dense(result)}};
    return pays(epilogue, {op(op_name), attrs, inputs, outputs, target_for_test()});
  };
  const Shape large = {1, 32, 320, 512}, small = {1, 32, 20, 20}, numbers = {32, 1, 1};
  EXPECT_FALSE(answer(EpilogueKind::none, "conv_map", large, numbers));
  EXPECT_TRUE(answer(EpilogueKind::narrow, "conv_map", large, numbers));
  EXPECT_FALSE(answer(EpilogueKind::narrow, "conv_map", large, large));
  EXPECT_TRUE(answer(EpilogueKind::any, "conv_map", large, large));
  EXPECT_FALSE(answer(EpilogueKind::any, "conv_map", small, numbers));
  EXPECT_FALSE(answer(EpilogueKind::any, "matmul_map", {64, 32}, {32}));
  EXPECT_TRUE(answer(EpilogueKind::in_registers, "matmul_map", {64, 32}, {32}));
}

}  // namespace
}  // namespace tessera::cpu
