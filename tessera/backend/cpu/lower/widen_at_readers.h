// Between distant readers, a tensor of halves is kept as halves: every reader gets a cast to f32 of
// its own, directly before it, where fusion takes it into the reader's body or what makes the
// halves writes both. Calls after each other that fusion does not take in, such as convolutions,
// share one. One cast for all readers, as the graph may have it, would keep twice the bytes from
// the first to the last of them, most of all between forward and backward. A node whose kernel
// widens halves while it reads them becomes one of halves (ops/of_halves.h), without a cast.
#pragma once

#include "tessera/backend/cpu/target.h"
#include "tessera/ir/graph.h"

namespace tessera::cpu {

// Whether a node makes f32 of f16: nothing is rounded.
bool is_widening(const Graph& graph, const Node& node);

// Which kernel a node will have depends on the target.
Graph widen_at_readers(const Graph& graph, const Target& target);

}  // namespace tessera::cpu
