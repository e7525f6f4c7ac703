#include "tessera/ops/fused_body.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

TEST(FusedBody, StepsGetTheirDefaults) {
  EXPECT_EQ(print_body(completed(parse_body("%0 = relu(a0); %1 = add(%0, a0); out %1"))),
            "%0 = relu(a0); %1 = add(%0, a0) {alpha = 1.0}; out %1");
  const Attrs attrs =
      completed(op("map"), {{"body", body_attr(parse_body("%0 = sub(a0, 1.0); out %0"))}});
  EXPECT_EQ(attrs.body("body").steps[0].attrs.number("alpha"), 1);
}

TEST(FusedBody, WhatCannotBeAStepIsRefused) {
  for (const char* text :
       {"%0 = relu(a0, a1); out %0", "%0 = nothing(a0); out %0", "%0 = matmul(a0, a1); out %0",
        "%0 = map(a0); out %0", "%0 = log_sigmoid_forward(a0); out %0",
        "%0 = clamp_between(a0, a1, a2); out %0", "%0 = relu(a0) {slope = 1.0}; out %0",
        "%0 = add(a0, a1) {alpha = 1}; out %0"}) {
    EXPECT_THROW(completed(parse_body(text)), Error) << text;
  }
}

TEST(FusedBody, TypesAreThoseOfTheRows) {
  const std::vector<TensorType> operands = {{DType::f32, {2, 3}}, {DType::f32, {3}}};
  const auto types = [&](const char* text) {
    return result_types(completed(parse_body(text)), operands);
  };
  EXPECT_EQ(types("%0 = gt(a0, a1) : bool; out %0, sum a1 over [1] keepdim"),
            (std::vector<TensorType>{{DType::boolean, {2, 3}}, {DType::f32, {2, 1}}}));
  EXPECT_THROW(types("%0 = relu(a2); out %0"), Error);    // there is no such operand
  EXPECT_THROW(types("%0 = gt(a0, a1); out %0"), Error);  // says f32, is bool
  EXPECT_THROW(types("%0 = relu(a0) : i32; out %0"), Error);
  EXPECT_THROW(types("%0 = add(a0, i32(2.0)); out %0"), Error);
  EXPECT_THROW(types("%0 = relu(a1); out %0"), Error);  // smaller than all together
  EXPECT_THROW(types("%0 = logical_and(a0, a1) : bool; %1 = add(%0, a0); out %1"), Error);
  EXPECT_THROW(types("%0 = relu(a0); out sum %0 over [2]"), Error);
}

}  // namespace
}  // namespace tessera
