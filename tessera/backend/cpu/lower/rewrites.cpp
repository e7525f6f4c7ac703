#include "tessera/backend/cpu/lower/rewrites.h"

#include "tessera/backend/cpu/lower/fuse_elementwise.h"
#include "tessera/backend/cpu/lower/fuse_epilogues.h"
#include "tessera/backend/cpu/lower/fuse_losses.h"
#include "tessera/backend/cpu/lower/fuse_updates.h"
#include "tessera/backend/cpu/lower/recompute.h"
#include "tessera/backend/cpu/lower/round_at_contractions.h"
#include "tessera/backend/cpu/lower/split_norms.h"
#include "tessera/backend/cpu/lower/widen_at_readers.h"

namespace tessera::cpu {
namespace {

template <Graph (*rewrite)(const Graph&)>
void in_place(Graph& graph) {
  graph = rewrite(graph);
}

// Of one that depends on which kernels there are.
template <Graph (*rewrite)(const Graph&, const Target&)>
auto in_place_for(const Target& target) {
  return [target](Graph& graph) { graph = rewrite(graph, target); };
}

}  // namespace

std::vector<Pass> rewrites(const Target& target) {
  // clang-format off
  return {
      {"split_norms",      in_place<split_norms>,            "first: what norms are made of is then fused with what stands around them"},
      {"fuse_losses",      in_place<fuse_losses>,            "while losses and their log-softmax still stand side by side"},
      {"widen_at_readers", in_place_for<widen_at_readers>(target), "once norms and losses are what reads; before fusion, which takes a reader's own casts in"},
      {"fuse_elementwise", in_place<fuse_elementwise>,       "before epilogues: what a contraction goes on with is then one map"},
      {"fuse_updates",     in_place<fuse_updates>,           "before epilogues: a product that an update takes in goes on with nothing else"},
      {"fuse_epilogues",   in_place_for<fuse_epilogues>(target), "once maps are made and updates have taken their products"},
      {"round_at_contractions", in_place_for<round_at_contractions>(target), "after epilogues: what they did not take in as a whole"},
      {"recompute",        in_place<recompute_cheap_values>, "last: what is made again is then one call"},
  };
  // clang-format on
}

}  // namespace tessera::cpu
