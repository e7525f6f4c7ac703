#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"
#include "tessera/base/error.h"

namespace tessera::cpu {
namespace {

class AvgPool : public NeedsAvx2 {};

using Ints = std::vector<int64_t>;

struct Case {
  Shape input;
  Ints kernel, stride = {}, padding = {0};
  bool ceil_mode = false, count_padding = true;
  int64_t divisor = 0;

  Attrs attrs() const {
    Attrs attrs = {{"kernel_size", kernel},
                   {"stride", stride},
                   {"padding", padding},
                   {"ceil_mode", ceil_mode},
                   {"count_include_pad", count_padding}};
    if (divisor != 0) attrs.set("divisor_override", divisor);
    return attrs;
  }
};

std::vector<Case> cases() {
  return {
      {{8, 8, 4, 24}, {2, 2}},
      {{8, 8, 7, 7}, {7, 7}, {1, 1}},
      {{8, 8, 7, 9}, {7, 7}},
      {{8, 8, 5, 27}, {2}, {2, 2}},
      {{8, 8, 6, 25}, {3, 3}, {2, 2}, {1, 1}},
      {{8, 8, 6, 25}, {3, 3}, {2, 2}, {1, 1}, false, false},
      {{8, 8, 5, 27}, {3, 3}, {2, 2}, {1, 1}, true},
      {{8, 8, 5, 27}, {3, 3}, {2, 2}, {1, 1}, true, false},
      {{8, 8, 5, 20}, {3, 2}, {1, 1}, {1, 0}},
      {{8, 8, 7, 40}, {4, 5}, {3, 3}, {2, 1}, false, true, 7},
      {{8, 8, 3, 3}, {2, 2}, {2, 2}, {1, 1}},
  };
}

// One place for a plain image: the order of the sum is another one.
double tolerance(const Case& c, const Layout& layout) {
  return layout.plain() && c.kernel == Ints{7, 7} ? 1e-6 : 0;
}

TEST_F(AvgPool, HasTheBitsOfTheReferenceInAnyLayout) {
  for (const Case& c : cases()) {
    for (const Layout& layout : {plain_layout, channels_layout, batch_layout}) {
      SCOPED_TRACE(tessera::to_string(c.input) + " " + to_string(layout));
      OperatorTrial trial("avg_pool2d", {{c.input, layout}}, c.attrs(), {layout});
      trial.values(0)[50] = INFINITY;
      trial.expect_agrees("avx2_avg_pool", tolerance(c, layout));
    }
  }
}

TEST_F(AvgPool, GradientHasTheBitsOfTheReference) {
  for (const Case& c : cases()) {
    const Shape out = OperatorTrial("avg_pool2d", {{c.input}}, c.attrs()).result_type(0).shape;
    for (const Layout& layout : {plain_layout, channels_layout, batch_layout}) {
      SCOPED_TRACE(tessera::to_string(c.input) + " " + to_string(layout));
      const OperatorTrial trial("avg_pool2d_backward", {{out, layout}, {c.input, layout}},
                                c.attrs(), {layout});
      if (layout.plain() && trial.kernel() == "reference") continue;
      trial.expect_agrees("avx2_avg_pool_backward", 0);
    }
  }
}

TEST_F(AvgPool, WindowsThatAreSpreadEvenly) {
  for (const Shape& input : {Shape{8, 8, 7, 7}, Shape{8, 8, 6, 32}, Shape{8, 8, 3, 37}}) {
    for (const Ints& size : {Ints{1, 1}, Ints{3, 3}, Ints{6, 16}, Ints{4, 40}}) {
      for (const Layout& layout : {plain_layout, channels_layout, batch_layout}) {
        SCOPED_TRACE(tessera::to_string(input) + " to " + tessera::to_string(size) + " " +
                     to_string(layout));
        const OperatorTrial forward("adaptive_avg_pool2d", {{input, layout}},
                                    {{"output_size", size}}, {layout});
        forward.expect_agrees("avx2_avg_pool", layout.plain() && size[0] == 1 ? 1e-6 : 0);
        const OperatorTrial backward("adaptive_avg_pool2d_backward",
                                     {{forward.result_type(0).shape, layout}, {input, layout}}, {},
                                     {layout});
        if (layout.plain() && backward.kernel() == "reference") continue;
        backward.expect_agrees("avx2_avg_pool_backward", 0);
      }
    }
  }
}

TEST_F(AvgPool, GradientsOfPlainImagesWhoseWindowsOverlapAreTheReferences) {
  const auto kernel = [](const Case& c) {
    const Shape out = OperatorTrial("avg_pool2d", {{c.input}}, c.attrs()).result_type(0).shape;
    return OperatorTrial("avg_pool2d_backward", {{out}, {c.input}}, c.attrs()).kernel();
  };
  EXPECT_EQ(kernel({{2, 3, 8, 8}, {2, 2}}), "avx2_avg_pool_backward");
  EXPECT_EQ(kernel({{2, 3, 8, 8}, {3, 3}, {2, 2}}), "reference");
}

// As small results of large images are laid out.
TEST_F(AvgPool, OnePlaceForEachChannelMayBePlain) {
  const Case c{{2, 24, 9, 11}, {9, 11}};
  const Shape out = {2, 24, 1, 1};
  OperatorTrial("avg_pool2d", {{c.input, channels_layout}}, c.attrs())
      .expect_agrees("avx2_avg_pool", 0);
  OperatorTrial("adaptive_avg_pool2d_backward", {{out}, {c.input, channels_layout}}, {},
                {channels_layout})
      .expect_agrees("avx2_avg_pool_backward", 0);
  EXPECT_THROW(
      OperatorTrial("avg_pool2d", {{c.input, channels_layout}}, {{"kernel_size", Ints{4}}}),
      InternalError);
}

TEST_F(AvgPool, OneImageWithoutABatch) {
  const Case c{{3, 20, 33}, {2, 2}};
  OperatorTrial("avg_pool2d", {{c.input}}, c.attrs()).expect_agrees("avx2_avg_pool", 0);
}

}  // namespace
}  // namespace tessera::cpu
