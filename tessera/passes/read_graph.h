// Reads a graph from text that may come from anywhere. Beyond parse(), every node must be a use of
// a row of the operator table that its rule accepts; attributes that are left out get their
// defaults. Error otherwise.
#pragma once

#include <string_view>

#include "tessera/ir/graph.h"

namespace tessera {

Graph read_graph(std::string_view text);

}  // namespace tessera
