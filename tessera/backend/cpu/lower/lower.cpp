#include "tessera/backend/cpu/lower/lower.h"

#include <algorithm>

#include "tessera/backend/cpu/lower/aliases.h"
#include "tessera/backend/cpu/lower/in_place.h"
#include "tessera/backend/cpu/lower/layouts.h"
#include "tessera/backend/cpu/lower/schedule.h"
#include "tessera/backend/cpu/lower/split_norms.h"
#include "tessera/backend/cpu/lower/states.h"
#include "tessera/backend/cpu/lower/write_plan.h"

namespace tessera::cpu {

Plan lower(const Graph& step, const LowerOptions& options) {
  const auto enabled = [&](std::string_view rewrite) {
    return std::find(options.disabled.begin(), options.disabled.end(), rewrite) ==
           options.disabled.end();
  };
  Graph graph = step;
  if (enabled("split_norms")) graph = split_norms(graph);

  // Views cost nothing from here on: they are geometries over blocks of memory.
  Draft draft = resolve_aliases(graph, schedule(graph));
  draft.precise = options.precise;

  // Layouts before reuse of memory: a result can only take the place of what lies as it does.
  choose_layouts(draft);

  // Before other reuse of memory: an update in place saves a copy of every parameter.
  settle_states(draft);
  reuse_dying_operands(draft);

  // Kernels before memory: their workspace is in the arena too.
  const std::vector<KernelChoice> kernels = choose_kernels(draft);
  return write_plan(draft, kernels);
}

}  // namespace tessera::cpu
