// Runs a graph on made-up values and says how long a step takes, and how much of it is PyTorch's.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/ir/graph.h"

namespace tessera {

std::string time_graph(Graph graph, int64_t runs, int threads);

}  // namespace tessera
