// Turns a verified step Graph without composites into a Plan for this CPU.
#pragma once

#include "tessera/backend/cpu/kernels/tuner.h"
#include "tessera/backend/cpu/plan.h"
#include "tessera/ir/graph.h"
#include "tessera/passes/pass.h"

namespace tessera::cpu {

struct LowerOptions {
  PassOptions rewrites = {};    // how the list in rewrites.h is run
  bool keep_operators = false;  // no rewrites at all: each operator is a call of its own
  bool precise = false;         // no algorithm that is less exact than the plain one;
                                // small programs that train have none anyway
  bool autotune = false;        // time kernels where several apply
  TunedKernels tuned = {};      // what an earlier compilation chose so, to be repeated
};

Plan lower(const Graph& graph, const LowerOptions& options = {});

}  // namespace tessera::cpu
