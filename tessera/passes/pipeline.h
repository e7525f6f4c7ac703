// The list of the passes for any device, in the order in which a captured step goes through them.
// What a compilation runs after them is the backend's list (backend/cpu/lower/rewrites.h).
#pragma once

#include <span>

#include "tessera/passes/pass.h"

namespace tessera {

std::span<const Pass> pipeline();

}  // namespace tessera
