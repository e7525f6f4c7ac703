// A program's graph for other tools: as text, as a drawing for Graphviz, as JSON.
#pragma once

#include <string>

#include "tessera/ir/graph.h"

namespace tessera {

// {"maingraph": [{"type", "name", "inputs", "outputs", "attributes"}, ...]}, an entry for each
// operator in the order of the program; tensors have a name, a shape and a type.
std::string graph_json(const Graph& graph);

// For `dot -Tsvg`.
std::string graph_dot(const Graph& graph);

// Writes the graph where POPTORCH_EXPORT_PROTO_FILE says, making folders that are missing: as .dot
// where the name ends so, else as our text. Nothing where the variable is not set.
void export_graph(const Graph& graph);

}  // namespace tessera
