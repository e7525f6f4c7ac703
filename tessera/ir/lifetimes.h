// When the memory of each value is needed, over the nodes of a graph in the order in which they
// run, and how much is alive at each: for a device that plans its memory, whatever the device.
//
// A graph alone does not know which nodes only show the memory of their operand (views) and which
// make a value once and for all (constants); that is in the operator table, and NodeMemory is how
// it is said here (ops/node_memory.h). Without it every value has memory of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

enum class NodeMemory : uint8_t {
  own,       // its results have memory of their own
  view,      // its result lies in the memory of its first operand
  constant,  // its results are the same in every step: kept like states
};

// Where the memory of a value comes from.
enum class Residence : uint8_t { input, state, constant, temporary };

// Positions in GraphLifetimes::order, both included.
struct ValueLifetime {
  ValueId base;  // the value whose memory this one lies in: itself unless it is a view
  Residence residence = Residence::temporary;  // of its base
  int32_t first = -1;  // where it is made; -1: it is there before the first node
  int32_t last = -1;   // the last one that needs it; -1: none does. A base lives as its views do
};

struct GraphLifetimes {
  std::vector<NodeId> order;  // the nodes of a micro-batch, then those of an update
  std::vector<ValueLifetime> values;
  std::vector<int64_t> alive_bytes;  // of temporaries, while each node of `order` runs
  int64_t peak_bytes = 0;            // the largest of them
  int32_t peak = -1;                 // where that is first; -1 where there are no nodes
  // Of all inputs, states and constants, which no node frees.
  int64_t input_bytes = 0, state_bytes = 0, constant_bytes = 0;
};

// Outputs, and what states become after a micro-batch, live to the end of the micro-batch; what
// states become after an update, to the end.
GraphLifetimes lifetimes(const Graph& graph,
                         const std::function<NodeMemory(const Node&)>& memory_of = {});

}  // namespace tessera
