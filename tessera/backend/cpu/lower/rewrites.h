// The list of the rewrites that make of a step Graph the one this CPU likes, in the order in which
// they run: after the passes for any device (passes/pipeline.h), by the same runner.
#pragma once

#include <vector>

#include "tessera/backend/cpu/target.h"
#include "tessera/passes/pass.h"

namespace tessera::cpu {

// Which kernels there will be, and so what pays, depends on the target.
std::vector<Pass> rewrites(const Target& target = {});

}  // namespace tessera::cpu
