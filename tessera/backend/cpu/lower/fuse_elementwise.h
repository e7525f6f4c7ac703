// Makes one node of element-wise nodes that form a chain, and of the sums they end in, so that a
// chain is one pass over memory: `map` and `map_reduce` of the operator table. Which nodes go
// together, and why, is in docs/notes/fusion.md.
#pragma once

#include "tessera/ir/graph.h"

namespace tessera::cpu {

Graph fuse_elementwise(const Graph& graph);

}  // namespace tessera::cpu
