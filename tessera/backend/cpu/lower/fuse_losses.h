// Makes one node of log-softmax and negative log likelihood, and one of their gradients: log
// probabilities are then never stored. When that is possible is in docs/notes/fusion.md.
#pragma once

#include "tessera/ir/graph.h"

namespace tessera::cpu {

inline constexpr const char* fuse_losses_name = "fuse_losses";  // to turn it off

Graph fuse_losses(const Graph& graph);

}  // namespace tessera::cpu
