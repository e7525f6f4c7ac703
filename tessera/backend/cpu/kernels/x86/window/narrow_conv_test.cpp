#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"

namespace tessera::cpu {
namespace {

class NarrowConv : public NeedsAvx2 {};

using Ints = std::vector<int64_t>;

struct Case {
  Shape input;
  int64_t narrow;

  Shape output() const { return {input[0], narrow, input[2], input[3]}; }
  Shape weight() const { return {narrow, input[1], 1, 1}; }
};

const std::vector<Case> cases = {
    {{1, 16, 32, 50}, 3}, {{2, 8, 9, 13}, 1}, {{3, 40, 5, 7}, 12},
    {{1, 64, 70, 70}, 5}, {{1, 8, 1, 1}, 2},  {{2, 24, 3, 3}, 10},
};

Attrs window() {
  return {{"stride", Ints{1, 1}}, {"padding", Ints{0, 0}}, {"dilation", Ints{1, 1}}};
}

TEST_F(NarrowConv, AgreesWithTheReference) {
  for (const Case& c : cases) {
    for (const bool bias : {true, false}) {
      SCOPED_TRACE(tessera::to_string(c.input));
      const TrialOperand shift{{c.narrow}, {}, -1, 1, DType::f32, bias};
      OperatorTrial("conv", {{c.input, channels_layout}, {c.weight()}, shift}, window())
          .expect_agrees("narrow", 1e-6);
    }
  }
}

TEST_F(NarrowConv, InputGradAgreesWithTheReference) {
  for (const Case& c : cases) {
    SCOPED_TRACE(tessera::to_string(c.input));
    Attrs attrs = window();
    attrs.set("input_size", Ints(c.input.begin() + 1, c.input.end()));
    OperatorTrial("conv_input_grad", {{c.output()}, {c.weight()}}, attrs, {channels_layout})
        .expect_agrees("narrow", 1e-6);
  }
}

TEST_F(NarrowConv, WeightGradAgreesWithTheReference) {
  for (const Case& c : cases) {
    SCOPED_TRACE(tessera::to_string(c.input));
    Attrs attrs = window();
    attrs.set("kernel_size", Ints{1, 1});
    OperatorTrial("conv_weight_grad", {{c.output()}, {c.input, channels_layout}}, attrs)
        .expect_agrees("narrow", 3e-6);
  }
}

}  // namespace
}  // namespace tessera::cpu
