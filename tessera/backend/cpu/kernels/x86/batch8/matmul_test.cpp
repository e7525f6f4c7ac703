#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/x86/batch8/batch_trial_for_test.h"
#include "tessera/base/cpu_level_for_test.h"

namespace tessera::cpu {
namespace {

struct Case {
  int64_t batch, features, outputs;
};

TEST(Batch8Matmul, AgreesWithTheReferenceForAnyNumberOfThreads) {
  if (!has_avx2()) GTEST_SKIP() << "needs AVX2";
  for (const Case& c : {Case{16, 972, 100}, Case{16, 100, 10}, Case{8, 7, 3}, Case{72, 33, 29},
                        Case{8, 1, 1}, Case{16, 100, 972}, Case{24, 2, 5}}) {
    for (const bool transposed : {false, true}) {
      BatchTrial::Operand matrix{{c.features, c.outputs}};
      if (transposed) matrix.strides = {1, c.features};
      const BatchTrial trial("matmul", {{{c.batch, c.features}, batch_layout}, matrix}, {},
                             {batch_layout});
      ASSERT_EQ(trial.kernel(), "batch8") << c.features;
      EXPECT_LT(trial.error(), 5e-6) << c.features;
      EXPECT_TRUE(trial.same_bits_for_any_threads()) << c.features;
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
