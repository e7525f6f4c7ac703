#include "tessera/backend/cpu/lower/lower.h"

#include <algorithm>

#include "tessera/backend/cpu/lower/aliases.h"
#include "tessera/backend/cpu/lower/fuse_elementwise.h"
#include "tessera/backend/cpu/lower/in_place.h"
#include "tessera/backend/cpu/lower/schedule.h"
#include "tessera/backend/cpu/lower/states.h"
#include "tessera/backend/cpu/lower/write_plan.h"

namespace tessera::cpu {

namespace {

bool disabled(const LowerOptions& options, std::string_view name) {
  return std::find(options.disabled.begin(), options.disabled.end(), name) !=
         options.disabled.end();
}

// The graph as this CPU likes it; the device-neutral one stays as it is.
Graph rewritten(const Graph& graph, const LowerOptions& options) {
  return disabled(options, fuse_elementwise_name) ? graph : fuse_elementwise(graph);
}

}  // namespace

Plan lower(const Graph& step, const LowerOptions& options) {
  const Graph graph = rewritten(step, options);

  // Views cost nothing from here on: they are geometries over blocks of memory.
  Draft draft = resolve_aliases(graph, schedule(graph));

  // Before other reuse of memory: an update in place saves a copy of every parameter.
  settle_states(draft);
  reuse_dying_operands(draft);

  // Kernels before memory: their workspace is in the arena too.
  const std::vector<KernelChoice> kernels = choose_kernels(draft);
  return write_plan(draft, kernels);
}

}  // namespace tessera::cpu
