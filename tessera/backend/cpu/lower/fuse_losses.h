// Makes one node of log-softmax and negative log likelihood, and one of their gradients: log
// probabilities are then never stored. When that is possible is in docs/notes/fusion.md.
#pragma once

#include "tessera/ir/graph.h"

namespace tessera::cpu {

Graph fuse_losses(const Graph& graph);

}  // namespace tessera::cpu
