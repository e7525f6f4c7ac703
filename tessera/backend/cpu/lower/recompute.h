// Makes cheap values of the forward pass again where the backward pass reads them, instead of
// keeping them until then, when that lowers the peak of memory. Cheap is what one element-wise pass
// makes from tensors that are kept anyway: the activation after a norm, from the norm's input.
#pragma once

#include "tessera/ir/graph.h"

namespace tessera::cpu {

Graph recompute_cheap_values(const Graph& graph);

}  // namespace tessera::cpu
