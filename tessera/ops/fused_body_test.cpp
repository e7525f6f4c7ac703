#include "tessera/ops/fused_body.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

TEST(FusedBody, TextAndBack) {
  for (const char* text : {"%0 = mul(a0, a1); %1 = add(%0, 0.5) {alpha = 2.0}; out %1",
                           "%0 = gelu(a0) {approximate = \"tanh\"}; %1 = gt(%0, -inf); out %0, %1",
                           "%0 = exp(a0); out %0, sum %0 over [0, 2, 3] keepdim, sum a1 over []",
                           "out sum a0 over [1]"}) {
    EXPECT_EQ(print(parse_body(text)), text);
  }
  // Attributes that are what they are anyway are not written.
  EXPECT_EQ(print(parse_body("  %0=relu( a0 ) ;%1 = add(%0,a0){alpha = 1.0}; out  %1")),
            "%0 = relu(a0); %1 = add(%0, a0); out %1");
}

TEST(FusedBody, WhatIsNoBodyIsRefused) {
  for (const char* text :
       {"", "out", "out a0", "out 1.0", "out %0", "%0 = relu(a0)", "%0 = relu(a0); out %1",
        "%1 = relu(a0); out %1", "%0 = relu(%0); out %0", "%0 = relu(a0, a1); out %0",
        "%0 = nothing(a0); out %0", "%0 = matmul(a0, a1); out %0", "%0 = map(a0); out %0",
        "%0 = log_sigmoid_forward(a0); out %0", "%0 = relu(a0) {slope = 1.0}; out %0",
        "%0 = relu(a0); out %0 %0", "%0 = relu(a99999999999999999999); out %0",
        "%0 = relu(a0); out sum %0", "%0 = relu(a0); out sum %0 over [-1]"}) {
    EXPECT_THROW(parse_body(text), Error) << text;
  }
}

TEST(FusedBody, TypesAreThoseOfTheRows) {
  const std::vector<TensorType> operands = {{DType::f32, {2, 3}}, {DType::f32, {3}}};
  const auto types = [&](const char* text) { return result_types(parse_body(text), operands); };
  EXPECT_EQ(types("%0 = gt(a0, a1); out %0, sum a1 over [1] keepdim"),
            (std::vector<TensorType>{{DType::boolean, {2, 3}}, {DType::f32, {2, 1}}}));
  EXPECT_THROW(types("%0 = relu(a2); out %0"), Error);  // there is no such operand
  EXPECT_THROW(types("%0 = relu(a1); out %0"), Error);  // smaller than all together
  EXPECT_THROW(types("%0 = logical_and(a0, a1); %1 = add(%0, a0); out %1"), Error);
  EXPECT_THROW(types("%0 = relu(a0); out sum %0 over [2]"), Error);
}

}  // namespace
}  // namespace tessera
