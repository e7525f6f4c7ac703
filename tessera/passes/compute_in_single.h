// Half precision is a way to store numbers, not to compute with them: an operator computes in f32
// and rounds once, where it stores a result. Here that becomes part of the graph: around every
// operator that computes, operands of f16 are cast to f32 and its results back. What only moves
// elements, or looks at memory in another way, moves halves.
//
// The casts to f16 are where a program rounds: to the nearest half, or by chance. Each of the
// latter gets a key of its own, in the order of the nodes, so that it draws the same numbers
// whatever is done to the graph later.
#pragma once

#include "tessera/ir/graph.h"

namespace tessera {

enum class Rounding { nearest, stochastic };

void compute_in_single(Graph& graph, Rounding rounding = Rounding::nearest);

}  // namespace tessera
