// Rebuilds a graph node by node: how every pass changes a graph. Inputs, states and outputs are
// kept, in their order; nodes that nothing uses any more are left to dead code removal.
#pragma once

#include <functional>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

class Rewriter {
 public:
  explicit Rewriter(const Graph& old_graph);

  const Graph& old_graph() const { return old_; }
  Graph& new_graph() { return new_; }

  // The new value of an old one. Not valid() stays not valid().
  ValueId map(ValueId old_value) const;
  std::vector<ValueId> map(const std::vector<ValueId>& old_values) const;

  // Says which new value replaces an old one.
  void replace(ValueId old_value, ValueId new_value);

  // Copies a node as it is, with its operands mapped.
  void copy(const Node& old_node);

  // Takes over outputs and states and hands the new graph out.
  Graph finish();

 private:
  const Graph& old_;
  Graph new_;
  std::vector<ValueId> mapped_;
};

// Calls `visit` for every node in order. It must replace() every result that is still used, by
// calling copy() or otherwise.
Graph rewrite(const Graph& graph, const std::function<void(Rewriter&, const Node&)>& visit);

}  // namespace tessera
