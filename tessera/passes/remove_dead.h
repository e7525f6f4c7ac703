// Removes nodes that no output and no state depends on. Inputs and states stay.
#pragma once

#include "tessera/ir/graph.h"

namespace tessera {

void remove_dead(Graph& graph);

}  // namespace tessera
