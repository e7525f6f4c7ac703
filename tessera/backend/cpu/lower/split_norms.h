// Takes batch norms apart into what they are made of: the moments of the channels, a little
// arithmetic on them and an element-wise remainder. An element-wise neighbour (an activation, a
// residual sum, the gradient of either) can then join the remainder, and a whole block reads and
// writes each tensor once instead of once per operator.
//
// The remainder is (x - mean) * scale + bias and not x * scale + shift: the latter cancels where a
// channel's mean is large beside its deviation.
#pragma once

#include "tessera/ir/graph.h"

namespace tessera::cpu {

Graph split_norms(const Graph& graph);

}  // namespace tessera::cpu
