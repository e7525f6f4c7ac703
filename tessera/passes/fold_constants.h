// Computes now what depends on constants alone, with the reference kernels, where the result is
// small. A result whose elements are all the same becomes a fill, with exactly those bits.
#pragma once

#include "tessera/base/cpu_level.h"
#include "tessera/ir/graph.h"

namespace tessera {

// As a CPU of that level computes it.
void fold_constants(Graph& graph, CpuLevel level);

}  // namespace tessera
