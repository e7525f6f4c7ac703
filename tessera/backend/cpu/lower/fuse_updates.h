// Makes one node of an optimiser's update and the matrix product that is its gradient, where
// nothing is accumulated in between: the gradient of a linear layer is then never stored. When that
// pays is in docs/notes/fusion.md.
#pragma once

#include "tessera/ir/graph.h"

namespace tessera::cpu {

Graph fuse_updates(const Graph& graph);

}  // namespace tessera::cpu
