// Makes one node of a contraction and the element-wise map that goes on with its result, where the
// contraction's kernel hands out its result while it lies in the cache. Which ones, and why, is in
// docs/notes/fusion.md. Runs after fuse_elementwise.
#pragma once

#include "tessera/backend/cpu/target.h"
#include "tessera/ir/graph.h"

namespace tessera::cpu {

// Which kernel a contraction will have depends on the target.
Graph fuse_epilogues(const Graph& graph, const Target& target);

}  // namespace tessera::cpu
