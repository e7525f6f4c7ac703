// What a program is compiled for: the instructions of a CPU, and what may be done with them. It
// goes from the caller's options through every choice that lowering makes, and the Plan keeps it.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/cpu_level.h"

namespace tessera::cpu {

struct Target {
  CpuLevel level = machine_level();
  std::vector<std::string> disabled_kernels = {};  // names of entries that are passed over
  bool precise = false;   // no algorithm that is less exact than the plain one; small programs that
                          // train have none anyway
  bool autotune = false;  // time kernels where several apply, instead of following a fixed rule

  bool has(CpuLevel wanted) const { return level >= wanted; }
  int vector_width() const { return has(CpuLevel::avx2) ? 8 : 4; }  // floats in a register
};

// One line.
std::string print(const Target& target);

}  // namespace tessera::cpu
