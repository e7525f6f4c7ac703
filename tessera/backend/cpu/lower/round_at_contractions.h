// Lets a contraction round its result itself, where its kernel can do so box by box: what reads it
// then reads halves, and the result is never in memory as f32. For readers that are not joined to
// the contraction, because they sum up or read more. Runs after fuse_epilogues.
#pragma once

#include "tessera/backend/cpu/target.h"
#include "tessera/ir/graph.h"

namespace tessera::cpu {

// Which kernel a contraction will have depends on the target.
Graph round_at_contractions(const Graph& graph, const Target& target);

}  // namespace tessera::cpu
