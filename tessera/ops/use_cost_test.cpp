#include "tessera/ops/use_cost.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

using Types = std::vector<std::optional<TensorType>>;

UseCost cost_of(std::string_view name, const Types& operands, Attrs attrs = {}) {
  const OpDef& row = op(name);
  attrs = completed(row, std::move(attrs));
  std::vector<TensorType> results = infer(row, operands, attrs);
  for (TensorType& type : results) type.dtype = narrowed(type.dtype);
  return use_cost(row, OpView(operands, attrs), results);
}

TensorType f32(Shape shape) { return {DType::f32, std::move(shape)}; }

TEST(UseCost, CountsEachTensorOnce) {
  const UseCost cost = cost_of("conv", {f32({2, 4, 8, 8}), f32({6, 4, 3, 3}), std::nullopt},
                               {{"stride", Shape{1, 1}},
                                {"padding", Shape{1, 0}},
                                {"dilation", Shape{1, 1}},
                                {"groups", int64_t{1}}});
  EXPECT_EQ(cost.operand_types, (std::vector<DType>{DType::f32, DType::f32}));
  EXPECT_EQ(cost.operand_bytes, 4 * (2 * 4 * 8 * 8 + 6 * 4 * 3 * 3));
  EXPECT_EQ(cost.result_bytes, 4 * 2 * 6 * 8 * 6);
  EXPECT_EQ(cost.partials, DType::f32);
  const auto& work = std::get<ContractionCost>(cost.work);
  EXPECT_EQ(work.padding, (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(work.direction, Direction::forward);
}

TEST(UseCost, KnowsWhichGradientAConvolutionComputes) {
  const Attrs window = {
      {"stride", Shape{1}}, {"padding", Shape{0}}, {"dilation", Shape{1}}, {"groups", int64_t{1}}};
  Attrs by_input = window, by_weight = window;
  by_input.set("input_size", Shape{4, 10});
  by_weight.set("kernel_size", Shape{3});
  const Types of_input = {f32({2, 6, 8}), f32({6, 4, 3})};
  const Types of_weight = {f32({2, 6, 8}), f32({2, 4, 10})};
  const auto input = std::get<ContractionCost>(cost_of("conv_input_grad", of_input, by_input).work);
  const auto weight =
      std::get<ContractionCost>(cost_of("conv_weight_grad", of_weight, by_weight).work);
  EXPECT_EQ(input.direction, Direction::input_gradient);
  EXPECT_EQ(weight.direction, Direction::weight_gradient);
  EXPECT_EQ(input.multiply_adds, 2 * 6 * 8 * 4 * 3);
  EXPECT_EQ(weight.multiply_adds, input.multiply_adds);
  EXPECT_EQ(weight.field, input.field);
}

TEST(UseCost, KeepsTheStepsOfARecurrentLayerApart) {
  const UseCost cost = cost_of(
      "lstm", {f32({7, 3, 20}), f32({3, 5}), f32({3, 5}), f32({20, 5}), std::nullopt, std::nullopt},
      {{"reverse", false}});
  const auto& work = std::get<RecurrentCost>(cost.work);
  EXPECT_EQ(work.steps, 7);
  EXPECT_EQ(work.batch, 3);
  EXPECT_EQ(work.hidden, 5);
  EXPECT_EQ(work.gates, 4);
  EXPECT_FALSE(work.backward);
  EXPECT_EQ(work.multiply_adds, 7 * 3 * 20 * 5);
}

TEST(UseCost, SumsWholeNumbersInWholeNumbers) {
  const UseCost cost = cost_of("sum", {TensorType{DType::i16, {10}}});
  EXPECT_EQ(cost.partials, DType::i32);
  EXPECT_EQ(cost.operand_bytes, 20);
  EXPECT_EQ(cost.result_bytes, 4);
}

}  // namespace
}  // namespace tessera
