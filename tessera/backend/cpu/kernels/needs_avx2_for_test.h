// Tests that name kernels made of AVX2: skipped where this machine, or TESSERA_CPU_LEVEL, has none.
#pragma once

#include <gtest/gtest.h>

#include "tessera/base/cpu_level_for_test.h"

namespace tessera::cpu {

class NeedsAvx2 : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_avx2()) GTEST_SKIP() << "needs AVX2";
  }
};

// Tests that name kernels of libraries, which use all of the machine: skipped below its level.
class NeedsWholeMachine : public testing::Test {
 protected:
  void SetUp() override {
    if (level_for_test() != machine_level()) GTEST_SKIP() << "needs the level of the machine";
  }
};

}  // namespace tessera::cpu
