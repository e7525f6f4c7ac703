#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"

namespace tessera::cpu {
namespace {

class LayerNorm : public NeedsAvx2 {};

using Ints = std::vector<int64_t>;

struct Case {
  Shape shape, normalized;
};

const std::vector<Case> cases = {
    {{3, 4, 10}, {10}},  {{1, 1}, {1}},          {{5, 8}, {8}},        {{700, 33}, {33}},
    {{2, 5000}, {5000}}, {{2, 3, 4, 5}, {4, 5}}, {{3, 100, 64}, {64}},
};

Shape rows_shape(const Case& c) {
  Shape shape = c.shape;
  std::fill(shape.end() - static_cast<std::ptrdiff_t>(c.normalized.size()), shape.end(), 1);
  return shape;
}

TEST_F(LayerNorm, AgreesWithTheReference) {
  for (const Case& c : cases) {
    for (const bool affine : {true, false}) {
      SCOPED_TRACE(tessera::to_string(c.shape));
      const TrialOperand parameter{c.normalized, {}, -1, 1, DType::f32, affine};
      const Attrs attrs = {{"normalized_shape", c.normalized}};
      OperatorTrial("layer_norm", {{c.shape, {}, 3, 7}, parameter, parameter}, attrs)
          .expect_agrees("avx2_layer_norm", 4e-6);
    }
  }
}

TEST_F(LayerNorm, GradientsAgreeWithTheReference) {
  for (const Case& c : cases) {
    for (const bool affine : {true, false}) {
      SCOPED_TRACE(tessera::to_string(c.shape));
      const Shape rows = rows_shape(c);
      const TrialOperand parameter{c.normalized, {}, -1, 1, DType::f32, affine};
      const Ints mask = affine ? Ints{1, 1, 1} : Ints{1, 0, 0};
      OperatorTrial(
          "layer_norm_backward",
          {{c.shape}, {c.shape}, {rows, {}, -0.1, 0.1}, {rows, {}, 0.5, 2}, parameter, parameter},
          {{"normalized_shape", c.normalized}, {"output_mask", mask}})
          .expect_agrees("avx2_layer_norm_backward", 2e-6);
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
