// Turns a verified step Graph without composites into a Plan for a Target.
#pragma once

#include "tessera/backend/cpu/kernels/tuner.h"
#include "tessera/backend/cpu/plan.h"
#include "tessera/ir/graph.h"
#include "tessera/passes/pass.h"

namespace tessera::cpu {

struct LowerOptions {
  PassOptions rewrites = {};    // how the list in rewrites.h is run
  bool keep_operators = false;  // no rewrites at all: each operator is a call of its own
  Target target = {};           // what the Plan is for
  int threads = 1;              // those that kernels are timed with
  TunedKernels tuned = {};      // what an earlier compilation chose so, to be repeated
};

Plan lower(const Graph& graph, const LowerOptions& options = {});

}  // namespace tessera::cpu
