// The list of the passes for any device, in the order in which a captured step goes through them.
// What a compilation runs after them is the backend's list (backend/cpu/lower/rewrites.h).
#pragma once

#include <vector>

#include "tessera/base/cpu_level.h"
#include "tessera/passes/compute_in_single.h"
#include "tessera/passes/pass.h"

namespace tessera {

// Constants are folded with what a CPU of that level can do.
std::vector<Pass> pipeline(CpuLevel level = machine_level(), const HalfArithmetic& halves = {});

}  // namespace tessera
