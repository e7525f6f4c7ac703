// Gives every state values of its own to take: never another state's or its own old value, an
// input, a view, or what another state takes as well. So a value can be written straight into the
// memory of the state that takes it. Also puts the nodes of micro-batches before those of updates.
#pragma once

#include "tessera/ir/graph.h"

namespace tessera {

void own_state_values(Graph& graph);

}  // namespace tessera
