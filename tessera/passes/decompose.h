// Takes composites, and rows that have a simpler form, apart into other rows, until none is left.
#pragma once

#include "tessera/ir/graph.h"

namespace tessera {

void decompose(Graph& graph);

}  // namespace tessera
