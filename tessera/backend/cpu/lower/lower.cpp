#include "tessera/backend/cpu/lower/lower.h"

#include "tessera/backend/cpu/lower/aliases.h"
#include "tessera/backend/cpu/lower/in_place.h"
#include "tessera/backend/cpu/lower/layouts.h"
#include "tessera/backend/cpu/lower/rewrites.h"
#include "tessera/backend/cpu/lower/schedule.h"
#include "tessera/backend/cpu/lower/states.h"
#include "tessera/backend/cpu/lower/write_plan.h"
#include "tessera/backend/cpu/verify_plan.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

// Whether the graph trains on images of which no channel has many values in a step. A value within
// a rounding of a ReLU's corner has a gradient or none; among few values, one of those is seen in
// what the weights become, and the less is rounded, the rarer it is (docs/notes/winograd.md).
bool trains_on_few_values(const Graph& graph) {
  constexpr int64_t few = 4096;
  bool trains = false;
  for (const Node& node : graph.nodes()) {
    const Kind kind = op(node).kind;
    trains = trains || kind == Kind::update;
    const bool reads = !node.operands.empty() && node.operands[0].valid();
    if (kind != Kind::contraction || !reads) continue;
    const Shape& shape = graph.type(node.operands[0]).shape;
    if (shape.size() >= 4 && numel(shape) > few * shape[1]) return false;
  }
  return trains;
}

// The graph as this CPU likes it; the device-neutral one stays as it is.
Graph rewritten(Graph graph, const LowerOptions& options) {
  if (!options.keep_operators) run_passes(graph, rewrites(options.target), options.rewrites);
  return graph;
}

}  // namespace

Plan lower(const Graph& step, const LowerOptions& asked) {
  LowerOptions options = asked;
  options.target.precise = asked.target.precise || trains_on_few_values(step);
  const auto graph = std::make_shared<const Graph>(rewritten(step, options));

  // Views cost nothing from here on: they are geometries over blocks of memory.
  Draft draft = resolve_aliases(graph, schedule(*graph));
  draft.target = options.target;

  // Layouts before reuse of memory: a result can only take the place of what lies as it does.
  choose_layouts(draft);

  // Before other reuse of memory: an update in place saves a copy of every parameter.
  settle_states(draft);
  reuse_dying_operands(draft);

  // Kernels before memory: their workspace is in the arena too.
  KernelTuner tuner(options.tuned, options.target.autotune ? options.threads : 0);
  const std::vector<KernelChoice> kernels = choose_kernels(draft, tuner);
  Plan plan = write_plan(draft, kernels);
  plan.tuned = tuner.choices();
  verify(plan);
  return plan;
}

}  // namespace tessera::cpu
