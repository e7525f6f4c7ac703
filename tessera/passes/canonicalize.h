// Gives equal values equal forms: a view reaches straight into the value that has the memory, and
// nodes that change nothing are gone. Results keep their bits.
#pragma once

#include "tessera/ir/graph.h"

namespace tessera {

void canonicalize(Graph& graph);

}  // namespace tessera
