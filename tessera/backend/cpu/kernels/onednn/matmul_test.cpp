#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/kernel_for_test.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"

namespace tessera::cpu {
namespace {

Geometry turned(int64_t rows, int64_t columns) { return {{rows, columns}, {1, rows}, 0}; }

struct Case {
  std::string name;
  Geometry a, b;
};

std::vector<Case> cases() {
  return {
      {"plain", dense({3, 4}), dense({4, 5})},
      {"linear", dense({16, 972}), turned(972, 100)},
      {"linear, by the input", dense({16, 100}), dense({100, 972})},
      {"linear, by the weight", turned(100, 16), dense({16, 972})},
      {"both turned", turned(70, 30), turned(30, 50)},
      {"one row", dense({1, 40}), dense({40, 30})},
      {"one column", dense({50, 40}), dense({40, 1})},
      {"no depth", dense({50, 1}), dense({1, 60})},
      {"rows apart", {{20, 30}, {64, 1}, 5}, {{30, 10}, {100, 1}, 2}},
      {"large", dense({257, 129}), dense({129, 310})},
      {"batch", dense({7, 40, 50}), dense({7, 50, 60})},
      {"batch, turned", {{7, 40, 50}, {2000, 1, 40}, 0}, dense({7, 50, 60})},
      {"batch of one matrix", {{7, 40, 50}, {0, 50, 1}, 0}, dense({7, 50, 60})},
  };
}

TEST(Matmul, AgreesWithTheReference) {
  for (const Case& c : cases()) {
    const KernelTrial trial("matmul", {c.a, c.b});
    if (has_avx2()) {
      EXPECT_EQ(trial.kernel(), "packed") << c.name;
    }
    EXPECT_LT(trial.error(), 2e-6) << c.name;
  }
}

#ifdef TESSERA_WITH_ONEDNN
TEST(Matmul, OnednnAgreesWithTheReference) {
  if (level_for_test() != machine_level()) GTEST_SKIP() << "oneDNN uses the whole machine";
  const WithoutKernels others("packed");
  for (const Case& c : cases()) {
    const KernelTrial trial("matmul", {c.a, c.b});
    EXPECT_EQ(trial.kernel(), "onednn_matmul") << c.name;
    EXPECT_LT(trial.error(), 2e-6) << c.name;
    EXPECT_EQ(trial.result(3), trial.result(1)) << c.name;
  }
}
#endif

TEST(Matmul, HasTheSameBitsForAnyNumberOfThreads) {
  for (const Case& c : cases()) {
    const KernelTrial trial("matmul", {c.a, c.b});
    const auto one = trial.result(1);
    EXPECT_EQ(trial.result(2), one) << c.name;
    EXPECT_EQ(trial.result(3), one) << c.name;
  }
}

TEST(Matmul, OddStridesDoNotGoToOnednn) {
  {
    const WithoutKernels others("packed");
    EXPECT_EQ(KernelTrial("matmul", {{{4, 3}, {6, 2}, 0}, dense({3, 5})}).kernel(), "reference");
    EXPECT_EQ(KernelTrial("matmul", {{{4, 3}, {0, 1}, 0}, dense({3, 5})}).kernel(), "reference");
  }
  if (!has_avx2()) return;
  const KernelTrial trial("matmul", {{{4, 3}, {6, 2}, 0}, {{3, 5}, {0, 1}, 0}});
  EXPECT_EQ(trial.kernel(), "packed");
  EXPECT_LT(trial.error(), 2e-6);
}

TEST(Matmul, CanBeSwitchedOff) {
  const WithoutKernels others("packed, onednn_matmul");
  EXPECT_EQ(KernelTrial("matmul", {dense({3, 4}), dense({4, 5})}).kernel(), "reference");
}

}  // namespace
}  // namespace tessera::cpu
