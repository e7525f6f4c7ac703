// Gives every buffer of the arena its offset, so that no two that live at the same time overlap.
#pragma once

#include <span>

#include "tessera/backend/cpu/plan.h"

namespace tessera::cpu {

struct ArenaSizes {
  int64_t bytes = 0;
  int64_t without_reuse_bytes = 0;
  int64_t lower_bound_bytes = 0;
};

// Sets the offset of the buffers in Space::arena and leaves the others alone. Large buffers first,
// each into the tightest gap; equal buffers in their order, so that the result is always the same.
ArenaSizes assign_arena(std::span<Buffer> buffers);

}  // namespace tessera::cpu
