#include "tessera/base/cpu_level.h"

#include <cstdlib>

#include "tessera/base/error.h"

namespace tessera {
namespace {

CpuLevel machine_level() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? CpuLevel::avx2
                                                                         : CpuLevel::portable;
}

}  // namespace

std::string_view name_of(CpuLevel level) {
  return level == CpuLevel::portable ? "portable" : "avx2";
}

// Read anew for every choice, as TESSERA_DISABLE_KERNELS is.
CpuLevel cpu_level() {
  static const CpuLevel machine = machine_level();
  const char* text = std::getenv("TESSERA_CPU_LEVEL");
  if (!text || !*text) return machine;
  for (const CpuLevel level : {CpuLevel::portable, CpuLevel::avx2}) {
    if (name_of(level) != text) continue;
    check(level <= machine, ErrorKind::value,
          "TESSERA_CPU_LEVEL is '{}', but this machine has only '{}'.", text, name_of(machine));
    return level;
  }
  fail(ErrorKind::value, "TESSERA_CPU_LEVEL must be 'portable' or 'avx2', got '{}'.", text);
}

}  // namespace tessera
