// The order in which nodes run: that of the graph, with the nodes of an update after those of a
// micro-batch. Nodes that make a value from attributes alone run once, at load.
#pragma once

#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::cpu {

struct Schedule {
  std::vector<NodeId> load, micro_batch, update;
};

Schedule schedule(const Graph& graph);

}  // namespace tessera::cpu
