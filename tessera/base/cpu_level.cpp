#include "tessera/base/cpu_level.h"

#include "tessera/base/error.h"

namespace tessera {
namespace {

CpuLevel ask_machine() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    return CpuLevel::avx2;
  }
#endif
  return CpuLevel::portable;
}

}  // namespace

std::string_view name_of(CpuLevel level) {
  return level == CpuLevel::portable ? "portable" : "avx2";
}

CpuLevel machine_level() {
  static const CpuLevel level = ask_machine();
  return level;
}

CpuLevel usable_level(std::string_view name, std::string_view variable) {
  for (const CpuLevel level : {CpuLevel::portable, CpuLevel::avx2}) {
    if (name_of(level) != name) continue;
    check(level <= machine_level(), ErrorKind::value, "{} is '{}', but this machine has only '{}'.",
          variable, name, name_of(machine_level()));
    return level;
  }
  fail(ErrorKind::value, "{} must be 'portable' or 'avx2', got '{}'.", variable, name);
}

}  // namespace tessera
