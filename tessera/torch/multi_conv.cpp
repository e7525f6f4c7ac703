#include "tessera/torch/multi_conv.h"

#include "tessera/base/error.h"
#include "tessera/ops/partials.h"

namespace tessera {
namespace {

// Of a convolution of halves; others add up in floats, whatever is asked for.
void say_partials(Graph& graph, NodeId convolution, DType type) {
  Node& node = graph.node(convolution);
  if (graph.type(node.operands[0]).dtype == DType::f16) set_partials(node.attrs, type);
}

}  // namespace

void MultiConvs::begin() {
  check(!open_, "a MultiConv begins inside another one, which has not ended");
  open_.emplace();
}

int64_t MultiConvs::end(Graph& graph, const std::vector<DType>& partials) {
  TESSERA_INVARIANT(open_, "a MultiConv ends that has not begun");
  const std::vector<Convolution> convolutions = std::move(*open_);
  open_.reset();
  check(!convolutions.empty(), "there is no convolution in a MultiConv");
  check(partials.size() <= 1 || partials.size() == convolutions.size(),
        "MultiConv.partialsTypes has {} types, but there are {} convolutions inside",
        partials.size(), convolutions.size());
  for (size_t i = 0; i < convolutions.size() && !partials.empty(); ++i) {
    const DType type = partials.size() == 1 ? partials[0] : partials[i];
    say_partials(graph, convolutions[i].node, type);
    if (convolutions[i].sequence >= 0) partials_[convolutions[i].sequence] = type;
  }
  return static_cast<int64_t>(convolutions.size());
}

void MultiConvs::add(Graph& graph, NodeId convolution, int64_t sequence, int64_t running) {
  if (open_) {
    open_->push_back({convolution, sequence});
    return;
  }
  const auto at = partials_.find(running);
  if (at != partials_.end()) say_partials(graph, convolution, at->second);
}

}  // namespace tessera
