#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"

namespace tessera::cpu {
namespace {

class Means : public NeedsAvx2 {};

using Ints = std::vector<int64_t>;

struct Case {
  Shape shape;
  Ints dims;
  Layout layout = {};
};

TEST_F(Means, AgreeWithTheReference) {
  const std::vector<Case> cases = {
      {{12, 24, 7, 7}, {2, 3}},
      {{12, 24, 7, 7}, {-1, -2}, channels_layout},
      {{1, 16, 50, 61}, {2, 3}, channels_layout},
      {{2, 8, 5, 1}, {2}, channels_layout},
      {{8, 128, 33}, {1}},
      {{70, 100}, {0}},
      {{9, 11, 13}, {0, 1}},
      {{3, 5000}, {1}},
      {{2, 3, 4}, {0, 1, 2}},
      {{1}, {0}},
  };
  for (const Case& c : cases) {
    for (const bool keepdim : {true, false}) {
      SCOPED_TRACE(tessera::to_string(c.shape));
      const Attrs attrs = {{"dim", c.dims}, {"keepdim", keepdim}};
      const std::vector<TrialOperand> operands = {{c.shape, c.layout}};
      OperatorTrial("mean", operands, attrs).expect_agrees("avx2_mean", 1e-6);
      OperatorTrial("sum", operands, attrs).expect_agrees("avx2_sum", 1e-6);
    }
  }
}

// Whatever is folded: a kernel is right, or does not take these dimensions in this layout.
TEST_F(Means, EveryChoiceOfDimensions) {
  for (const Shape& shape : {Shape{2, 16, 3, 4}, Shape{1, 8, 3, 1}, Shape{3, 8, 1, 5}}) {
    for (const Layout& layout : {Layout{}, channels_layout}) {
      for (unsigned choice = 1; choice < 16; ++choice) {
        Ints dims;
        for (int64_t d = 0; d < 4; ++d) {
          if ((choice >> d & 1) != 0) dims.push_back(d);
        }
        SCOPED_TRACE(tessera::to_string(shape) + " over " + tessera::to_string(dims));
        for (const char* op : {"mean", "sum"}) {
          try {
            const OperatorTrial trial(op, {{shape, layout}}, {{"dim", dims}});
            trial.expect_agrees(trial.kernel(), 1e-6);
          } catch (const std::exception& error) {
            EXPECT_NE(std::string(error.what()).find("no kernel"), std::string::npos);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
