#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"

namespace tessera::cpu {
namespace {

class ExtremesKernel : public NeedsAvx2 {};

struct Case {
  Shape shape;
  int64_t dim;
};

// Few different values, so that there are equal ones.
void put_equal_and_odd_values(OperatorTrial& trial, int64_t count) {
  float* x = trial.values(0);
  for (int64_t i = 0; i < count; ++i) x[i] = std::floor(x[i]);
  for (int64_t i = 3; i < count; i += 17) x[i] = NAN;
  for (int64_t i = 5; i < count; i += 23) x[i] = -INFINITY;
  for (int64_t i = 7; i < count; i += 29) x[i] = i % 2 == 0 ? 0.0F : -0.0F;
}

TEST_F(ExtremesKernel, AgreeWithTheReference) {
  const std::vector<Case> cases = {
      {{2, 3, 9, 31}, 1}, {{5, 8}, 0}, {{4, 7, 640}, -2}, {{3, 1, 8}, 1}, {{1, 20, 3, 300}, 1}};
  for (const Case& c : cases) {
    for (const char* name : {"argmax", "argmin", "max", "min"}) {
      for (const bool keepdim : {true, false}) {
        SCOPED_TRACE(name + tessera::to_string(c.shape));
        OperatorTrial trial(name, {{c.shape, {}, -3, 3}}, {{"dim", c.dim}, {"keepdim", keepdim}});
        trial.expect_agrees("avx2_extremes", 0);
        put_equal_and_odd_values(trial, numel(c.shape));
        trial.expect_agrees("avx2_extremes", 0);
      }
    }
  }
}

TEST_F(ExtremesKernel, LeaveRowsAndWholeTensorsAlone) {
  EXPECT_EQ(OperatorTrial("argmax", {{{9, 40}}}, {{"dim", int64_t{1}}}).kernel(), "reference");
  EXPECT_EQ(OperatorTrial("argmax", {{{9, 40}}}).kernel(), "reference");
}

}  // namespace
}  // namespace tessera::cpu
