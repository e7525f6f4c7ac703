// Tests that name kernels made of AVX2: skipped where this machine, or TESSERA_CPU_LEVEL, has none.
#pragma once

#include <gtest/gtest.h>

#include "tessera/base/cpu_level.h"

namespace tessera::cpu {

class NeedsAvx2 : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_avx2()) GTEST_SKIP() << "needs AVX2";
  }
};

}  // namespace tessera::cpu
