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

}  // namespace
}  // namespace tessera::cpu
