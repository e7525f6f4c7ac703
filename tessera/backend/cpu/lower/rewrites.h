// The list of the rewrites that make of a step Graph the one this CPU likes, in the order in which
// they run: after the passes for any device (passes/pipeline.h), by the same runner.
#pragma once

#include <vector>

#include "tessera/passes/pass.h"

namespace tessera::cpu {

// `precise` as in LowerOptions.
std::vector<Pass> rewrites(bool precise = false);

}  // namespace tessera::cpu
