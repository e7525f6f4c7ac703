#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"

namespace tessera::cpu {
namespace {

class GroupNorm : public NeedsAvx2 {};

using Ints = std::vector<int64_t>;

struct Case {
  Shape shape;
  int64_t groups;

  Attrs attrs() const {
    return {{"N", shape[0]},
            {"C", shape[1]},
            {"HxW", numel(shape) / (shape[0] * shape[1])},
            {"group", groups}};
  }
};

const std::vector<Case> cases = {{{1, 12, 9, 9}, 3}, {{2, 6, 4, 5}, 3},   {{3, 4, 1, 1}, 2},
                                 {{2, 6, 20}, 1},    {{1, 8, 50, 61}, 8}, {{5, 7, 8, 8}, 7}};

TEST_F(GroupNorm, AgreesWithTheReference) {
  for (const Case& c : cases) {
    for (const bool affine : {true, false}) {
      SCOPED_TRACE(tessera::to_string(c.shape));
      const TrialOperand parameter{{c.shape[1]}, {}, -1, 1, DType::f32, affine};
      OperatorTrial("group_norm", {{c.shape, {}, 3, 7}, parameter, parameter}, c.attrs())
          .expect_agrees("avx2_group_norm", 4e-6);
    }
  }
}

TEST_F(GroupNorm, GradientsAgreeWithTheReference) {
  for (const Case& c : cases) {
    for (const Ints& mask : {Ints{1, 1, 1}, Ints{1, 0, 0}, Ints{0, 1, 1}}) {
      SCOPED_TRACE(tessera::to_string(c.shape));
      const TrialOperand weight{{c.shape[1]}, {}, -1, 1, DType::f32, mask[1] != 0};
      const Shape statistics = {c.shape[0], c.groups};
      Attrs attrs = c.attrs();
      attrs.set("output_mask", mask);
      OperatorTrial(
          "group_norm_backward",
          {{c.shape}, {c.shape}, {statistics, {}, -0.1, 0.1}, {statistics, {}, 0.5, 2}, weight},
          attrs)
          .expect_agrees("avx2_group_norm_backward", 2e-6);
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
