// Which convolutions of a forward belong to a MultiConv, and what it says about them. Their
// gradients are recorded long after it has ended: autograd's sequence numbers tell whose they are.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

class MultiConvs {
 public:
  // Error inside another one.
  void begin();
  // Says what sums of its convolutions are kept in: one type for each, one for all, or none where
  // that is the program's matter. Returns how many convolutions there are; Error where there is
  // none, or they have another number of types.
  int64_t end(Graph& graph, const std::vector<DType>& partials);
  // As if it had not been begun.
  void forget() { open_.reset(); }

  // A convolution was recorded, which the autograd node of that number differentiates; or the
  // gradient of one, which the node that is running has asked for. -1 where there is none.
  void add(Graph& graph, NodeId convolution, int64_t sequence, int64_t running);

 private:
  struct Convolution {
    NodeId node;
    int64_t sequence;
  };

  std::optional<std::vector<Convolution>> open_;
  std::unordered_map<int64_t, DType> partials_;  // by sequence number
};

}  // namespace tessera
