// Turns a verified step Graph without composites into a Plan for this CPU.
#pragma once

#include <string>
#include <vector>

#include "tessera/backend/cpu/plan.h"
#include "tessera/ir/graph.h"

namespace tessera::cpu {

struct LowerOptions {
  std::vector<std::string> disabled = {};  // rewrites by name, as passes are turned off
  bool precise = false;                    // kernels with fewer roundings where there is a choice
};

Plan lower(const Graph& graph, const LowerOptions& options = {});

}  // namespace tessera::cpu
