// What a node is within a fused group: a step or a sum, or nothing.
#pragma once

#include <optional>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/ops/fused_body.h"

namespace tessera::cpu {

// A value that is read is not valid() where the step has a number instead.
struct FusionMember {
  BodyStep step = {};
  bool has_code = true;  // instructions of its own; otherwise its row's kernel is called
  std::optional<BodyResult> sum = {};
  std::vector<ValueId> reads = {};
};

// Nothing where the node must stay what it is.
std::optional<FusionMember> fusion_member(const Graph& graph, const Node& node);

}  // namespace tessera::cpu
