#include "tessera/backend/cpu/lower/schedule.h"

#include "tessera/ops/registry.h"

namespace tessera::cpu {

Schedule schedule(const Graph& graph) {
  Schedule order;
  for (int32_t i = 0; i < graph.node_count(); ++i) {
    const Node& node = graph.node({i});
    if (op(node).kind == Kind::source) {
      order.load.push_back({i});
    } else if (node.phase == Phase::micro_batch) {
      order.micro_batch.push_back({i});
    } else {
      order.update.push_back({i});
    }
  }
  return order;
}

}  // namespace tessera::cpu
