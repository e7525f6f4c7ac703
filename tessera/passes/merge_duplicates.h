// Merges nodes that compute the same value: same operator, operands, attributes, phase and stage.
// Random operators too: with equal keys they draw equal numbers. The first one stays.
#pragma once

#include "tessera/ir/graph.h"

namespace tessera {

void merge_duplicates(Graph& graph);

}  // namespace tessera
