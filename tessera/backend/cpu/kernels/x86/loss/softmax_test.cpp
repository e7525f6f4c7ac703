#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/kernel_for_test.h"
#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"

namespace tessera::cpu {
namespace {

class Softmax : public NeedsAvx2 {};

struct Case {
  Shape shape;
  int64_t dim;
};

std::vector<Case> cases() {
  return {{{3, 10}, 1},       {{4, 7, 64}, -1}, {{2, 1}, 1},         {{5, 3}, 0},
          {{2, 3, 9, 31}, 1}, {{6, 1000}, 1},   {{2, 5, 40, 40}, 1}, {{1, 3}, 1}};
}

Attrs attrs_of(const Case& c) { return {{"dim", c.dim}}; }

TEST_F(Softmax, AgreesWithTheReference) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(tessera::to_string(c.shape));
    OperatorTrial("_softmax", {{c.shape, {}, -30, 30}}, attrs_of(c))
        .expect_agrees("avx2_softmax", 3e-7);
    OperatorTrial("_log_softmax", {{c.shape, {}, -5, 5}}, attrs_of(c))
        .expect_agrees("avx2_log_softmax", 3e-7);
  }
}

TEST_F(Softmax, GradientsAgreeWithTheReference) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(tessera::to_string(c.shape));
    OperatorTrial("_softmax_backward_data", {{c.shape}, {c.shape, {}, 0, 1}}, attrs_of(c))
        .expect_agrees("avx2_softmax_backward", 1e-6);
    OperatorTrial("_log_softmax_backward_data", {{c.shape}, {c.shape, {}, -6, 0}}, attrs_of(c))
        .expect_agrees("avx2_log_softmax_backward", 1e-6);
  }
}

// A slice of channels of every image, columns that are far apart, one row for all.
TEST_F(Softmax, OtherViewsAreCopiedFirst) {
  const std::vector<Geometry> views = {
      {{2, 3, 5, 7}, {9 * 35, 35, 7, 1}, 3 * 35}, {{6, 10}, {1, 6}, 0}, {{4, 9}, {0, 1}, 0}};
  for (const Geometry& view : views) {
    SCOPED_TRACE(tessera::to_string(view.shape));
    const KernelTrial trial("_log_softmax", {view}, {{"dim", int64_t{1}}});
    EXPECT_EQ(trial.kernel(), "copies_avx2_log_softmax");
    EXPECT_LT(trial.error(), 3e-7);
    EXPECT_EQ(trial.result(1), trial.result(3));
    const KernelTrial backward("_softmax_backward_data", {view, dense(view.shape)},
                               {{"dim", int64_t{1}}});
    EXPECT_EQ(backward.kernel(), "copies_avx2_softmax_backward");
    EXPECT_LT(backward.error(), 1e-6);
  }
}

// What a program passes as the result may be no logarithm of a softmax.
TEST_F(Softmax, GradientsOfLogarithmsTakeAnyResult) {
  for (const int64_t dim : {0, 1}) {
    OperatorTrial trial("_log_softmax_backward_data", {{{9, 11}}, {{9, 11}, {}, -5, 5}},
                        {{"dim", dim}});
    trial.values(1)[3] = 3e38F;
    trial.values(1)[40] = std::numeric_limits<float>::infinity();
    trial.values(1)[50] = -std::numeric_limits<float>::infinity();
    trial.values(1)[60] = 100;
    trial.expect_agrees("avx2_log_softmax_backward", 5e-7);
  }
}

TEST_F(Softmax, MaskedElementsAreZeroAndNanSpreads) {
  for (const int64_t dim : {1, 0}) {
    OperatorTrial trial("_softmax", {{{12, 12}}}, {{"dim", dim}});
    float* x = trial.values(0);
    for (size_t i = 0; i < 12; ++i) x[i * 13] = -INFINITY;  // the diagonal
    x[5] = NAN;
    x[30] = INFINITY;
    for (size_t i = 0; i < 12; ++i) x[84 + i] = -INFINITY;  // a row of nothing
    trial.expect_agrees("avx2_softmax", 3e-7);
  }
}

}  // namespace
}  // namespace tessera::cpu
