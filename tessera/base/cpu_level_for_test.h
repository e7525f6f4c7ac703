// The level that tests run at: this machine's, or what TESSERA_CPU_LEVEL says. Test programs run a
// second time as portable.
#pragma once

#include <cstdlib>

#include "tessera/base/cpu_level.h"

namespace tessera {

inline CpuLevel level_for_test() {
  const char* text = std::getenv("TESSERA_CPU_LEVEL");
  return text && *text ? usable_level(text, "TESSERA_CPU_LEVEL") : machine_level();
}

inline bool has_avx2() { return level_for_test() >= CpuLevel::avx2; }

}  // namespace tessera
