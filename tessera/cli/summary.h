// A graph in a few lines: its size, and what in it is not native.
#pragma once

#include <string>

#include "tessera/ir/graph.h"

namespace tessera {

std::string summary(const Graph& graph);

}  // namespace tessera
