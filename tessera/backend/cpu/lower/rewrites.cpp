#include "tessera/backend/cpu/lower/rewrites.h"

#include "tessera/backend/cpu/lower/fuse_elementwise.h"
#include "tessera/backend/cpu/lower/fuse_epilogues.h"
#include "tessera/backend/cpu/lower/fuse_losses.h"
#include "tessera/backend/cpu/lower/fuse_updates.h"
#include "tessera/backend/cpu/lower/recompute.h"
#include "tessera/backend/cpu/lower/split_norms.h"
#include "tessera/backend/cpu/lower/widen_at_readers.h"

namespace tessera::cpu {
namespace {

template <Graph (*rewrite)(const Graph&)>
void in_place(Graph& graph) {
  graph = rewrite(graph);
}

}  // namespace

std::vector<Pass> rewrites(const Target& target) {
  const auto fuse_epilogues_for_target = [target](Graph& graph) {
    graph = fuse_epilogues(graph, target);
  };
  // clang-format off
  return {
      {"split_norms",      in_place<split_norms>,            "first: what norms are made of is then fused with what stands around them"},
      {"fuse_losses",      in_place<fuse_losses>,            "while losses and their log-softmax still stand side by side"},
      {"widen_at_readers", in_place<widen_at_readers>,       "once norms and losses are what reads; before fusion, which takes a reader's own casts in"},
      {"fuse_elementwise", in_place<fuse_elementwise>,       "before epilogues: what a contraction goes on with is then one map"},
      {"fuse_updates",     in_place<fuse_updates>,           "before epilogues: a product that an update takes in goes on with nothing else"},
      {"fuse_epilogues",   fuse_epilogues_for_target,        "once maps are made and updates have taken their products"},
      {"recompute",        in_place<recompute_cheap_values>, "last: what is made again is then one call"},
  };
  // clang-format on
}

}  // namespace tessera::cpu
