// Which instructions our kernels may use. Portable code runs everywhere and is complete; avx2 (with
// FMA) is the fast path of x86-64. A program is compiled for one level, and its threads know it:
// the kernels that have code for several levels ask the pool they run on.
#pragma once

#include <string_view>

namespace tessera {

enum class CpuLevel { portable, avx2 };

std::string_view name_of(CpuLevel level);

// The highest that this machine has.
CpuLevel machine_level();

// The level of that name. Error where there is none, or this machine does not have it; `variable`
// is what the user wrote it into.
CpuLevel usable_level(std::string_view name, std::string_view variable);

}  // namespace tessera
