// Which instructions our own kernels may use. Portable code runs everywhere and is complete; avx2
// (with FMA) is the fast path. TESSERA_CPU_LEVEL=portable forces the former, to test it or to
// compare with it.
#pragma once

#include <string_view>

namespace tessera {

enum class CpuLevel { portable, avx2 };

std::string_view name_of(CpuLevel level);

// Of this machine, lowered by TESSERA_CPU_LEVEL. Error where the variable names no level or one
// that this machine does not have.
CpuLevel cpu_level();

inline bool has_avx2() { return cpu_level() >= CpuLevel::avx2; }

}  // namespace tessera
