#include "tessera/backend/cpu/lower/lower.h"

#include <algorithm>

#include "tessera/backend/cpu/lower/aliases.h"
#include "tessera/backend/cpu/lower/fuse_elementwise.h"
#include "tessera/backend/cpu/lower/fuse_epilogues.h"
#include "tessera/backend/cpu/lower/fuse_losses.h"
#include "tessera/backend/cpu/lower/fuse_updates.h"
#include "tessera/backend/cpu/lower/in_place.h"
#include "tessera/backend/cpu/lower/layouts.h"
#include "tessera/backend/cpu/lower/recompute.h"
#include "tessera/backend/cpu/lower/schedule.h"
#include "tessera/backend/cpu/lower/split_norms.h"
#include "tessera/backend/cpu/lower/states.h"
#include "tessera/backend/cpu/lower/write_plan.h"
#include "tessera/backend/cpu/verify_plan.h"

namespace tessera::cpu {

namespace {

bool enabled(const LowerOptions& options, std::string_view rewrite) {
  return std::find(options.disabled.begin(), options.disabled.end(), rewrite) ==
         options.disabled.end();
}

// The graph as this CPU likes it; the device-neutral one stays as it is.
Graph rewritten(Graph graph, const LowerOptions& options) {
  if (options.keep_operators) return graph;
  // Norms first: what they are made of is then fused with what stands around them.
  if (enabled(options, "split_norms")) graph = split_norms(graph);
  if (enabled(options, fuse_losses_name)) graph = fuse_losses(graph);
  if (enabled(options, fuse_elementwise_name)) graph = fuse_elementwise(graph);
  if (enabled(options, fuse_updates_name)) graph = fuse_updates(graph);
  if (enabled(options, fuse_epilogues_name)) graph = fuse_epilogues(graph, options.precise);
  // After fusion: what is made again is then one pass.
  if (enabled(options, recompute_name)) graph = recompute_cheap_values(graph);
  return graph;
}

}  // namespace

Plan lower(const Graph& step, const LowerOptions& options) {
  const auto graph = std::make_shared<const Graph>(rewritten(step, options));

  // Views cost nothing from here on: they are geometries over blocks of memory.
  Draft draft = resolve_aliases(graph, schedule(*graph));
  draft.precise = options.precise;

  // Layouts before reuse of memory: a result can only take the place of what lies as it does.
  choose_layouts(draft);

  // Before other reuse of memory: an update in place saves a copy of every parameter.
  settle_states(draft);
  reuse_dying_operands(draft);

  // Kernels before memory: their workspace is in the arena too.
  KernelTuner tuner(options.tuned, options.autotune);
  const std::vector<KernelChoice> kernels = choose_kernels(draft, tuner);
  Plan plan = write_plan(draft, kernels);
  plan.tuned = tuner.choices();
  verify(plan);
  return plan;
}

}  // namespace tessera::cpu
