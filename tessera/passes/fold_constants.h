// Computes now what depends on constants alone, with the reference kernels, where the result is
// small. A result whose elements are all the same becomes a fill, with exactly those bits.
#pragma once

#include "tessera/ir/graph.h"

namespace tessera {

void fold_constants(Graph& graph);

}  // namespace tessera
