// Lets every gradient join those of earlier micro-batches as soon as it is whole. Captured steps do
// so at the end, when all gradients are there: then all of them are in memory at once, and none can
// be on its way to other replicas while the rest is computed.
#pragma once

#include "tessera/ir/graph.h"

namespace tessera {

void accumulate_early(Graph& graph);

}  // namespace tessera
