// Turns a verified step Graph without composites into a Plan for this CPU.
#pragma once

#include "tessera/backend/cpu/plan.h"
#include "tessera/ir/graph.h"

namespace tessera::cpu {

Plan lower(const Graph& graph);

}  // namespace tessera::cpu
