#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"
#include "tessera/backend/cpu/target_for_test.h"

namespace tessera::cpu {
namespace {

class MaxPool : public NeedsAvx2 {};

using Ints = std::vector<int64_t>;

struct Case {
  Shape input;
  Ints kernel, stride, padding, dilation = {1, 1};
  bool ceil_mode = false;
};

std::vector<Case> cases() {
  return {
      {{8, 8, 12, 40}, {2, 2}, {2, 2}, {0, 0}},
      {{8, 16, 13, 27}, {2, 2}, {}, {0, 0}},
      {{8, 8, 32, 32}, {3, 3}, {2, 2}, {1, 1}},
      {{16, 8, 9, 35}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, true},
      {{8, 8, 20, 30}, {3, 2}, {1, 1}, {1, 0}},
      {{8, 8, 20, 60}, {2, 2}, {3, 3}, {0, 1}, {2, 2}},
      {{8, 8, 3, 3}, {2, 2}, {2, 2}, {1, 1}},
  };
}

Attrs attrs_of(const Case& c) {
  return {{"kernel_size", c.kernel},
          {"stride", c.stride},
          {"padding", c.padding},
          {"dilation", c.dilation},
          {"ceil_mode", c.ceil_mode}};
}

TEST_F(MaxPool, HasTheBitsOfTheReferenceInAnyLayout) {
  const WithoutKernels others("batch8");
  for (const Case& c : cases()) {
    for (const Layout& layout : {plain_layout, channels_layout, batch_layout}) {
      SCOPED_TRACE(tessera::to_string(c.input) + " " + to_string(layout));
      OperatorTrial trial("max_pool2d_with_indices", {{c.input, layout}}, attrs_of(c),
                          {layout, layout});
      float* x = trial.values(0);
      for (size_t i = 0; i < 40; i += 2) x[i] = 0.5F;  // ties
      x[3] = x[50] = NAN;
      x[8] = x[9] = -INFINITY;
      trial.expect_agrees("avx2_max_pool", 0);
    }
  }
}

TEST_F(MaxPool, GradientHasTheBitsOfTheReference) {
  const WithoutKernels others("batch8");
  for (const Case& c : cases()) {
    OperatorTrial forward("max_pool2d_with_indices", {{c.input}}, attrs_of(c));
    const auto indices = forward.expected().at(1);
    const Shape out = forward.result_type(0).shape;
    for (const Layout& layout : {plain_layout, channels_layout, batch_layout}) {
      SCOPED_TRACE(tessera::to_string(c.input) + " " + to_string(layout));
      OperatorTrial trial("max_pool2d_with_indices_backward",
                          {{out, layout}, {c.input, layout}, {out, layout, 0, 1, DType::i32}},
                          attrs_of(c), {layout});
      std::memcpy(trial.integers(2), indices.data(), indices.size());
      trial.expect_agrees("avx2_max_pool_backward", 0);
    }
  }
}

TEST_F(MaxPool, OneImageWithoutABatch) {
  const OperatorTrial trial("max_pool2d_with_indices", {{{3, 20, 33}}},
                            attrs_of({{}, {2, 2}, {2, 2}, {0, 0}}));
  trial.expect_agrees("avx2_max_pool", 0);
}

}  // namespace
}  // namespace tessera::cpu
