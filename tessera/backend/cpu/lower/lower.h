// Turns a verified step Graph without composites into a Plan for a Target.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/backend/cpu/kernels/tuner.h"
#include "tessera/backend/cpu/plan.h"
#include "tessera/ir/graph.h"

namespace tessera::cpu {

struct LowerOptions {
  std::vector<std::string> disabled = {};  // names of rewrites; other names are left to others
  bool keep_operators = false;             // no rewrites at all: each operator is a call of its own
  Target target = {};                      // what the Plan is for
  TunedKernels tuned = {};                 // what an earlier compilation chose so, to be repeated
};

// Those that LowerOptions::disabled can turn off, in the order in which they run.
std::vector<std::string_view> rewrite_names();

Plan lower(const Graph& graph, const LowerOptions& options = {});

}  // namespace tessera::cpu
