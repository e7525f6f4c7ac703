#include "tessera/passes/pipeline.h"

#include "tessera/passes/accumulate_early.h"
#include "tessera/passes/canonicalize.h"
#include "tessera/passes/decompose.h"
#include "tessera/passes/fold_constants.h"
#include "tessera/passes/merge_duplicates.h"
#include "tessera/passes/own_state_values.h"
#include "tessera/passes/remove_dead.h"

namespace tessera {

std::vector<Pass> pipeline(CpuLevel level, const HalfArithmetic& halves) {
  const auto in_single = [halves](Graph& graph) { compute_in_single(graph, halves); };
  const auto fold = [level](Graph& graph) { fold_constants(graph, level); };
  // clang-format off
  return {
    {"compute_in_single", in_single,        "first: a composite rounds once, not wherever its parts would", true},
    {"decompose",         decompose,        "before what simplifies: composites have no kernels, and what they consist of is simplified below", true},
    {"remove_dead",       remove_dead,      "capture records what nobody reads; the passes below need not look at it"},
    {"canonicalize",      canonicalize,     "before folding and merging: equal values get equal forms"},
    {"fold_constants",    fold,             "capture leaves sizes, scalars and masks as nodes"},
    {"canonicalize",      canonicalize,     "again: folded scalars uncover factors of one"},
    {"merge_duplicates",  merge_duplicates, "last of the simplifications: their results compare equal"},
    {"remove_dead",       remove_dead,      "what was folded, composed or merged has no readers left"},
    {"accumulate_early",  accumulate_early, "after what merges and folds, which would find its nodes elsewhere; gradients die sooner, and travel sooner"},
    {"own_state_values",  own_state_values, "last: any pass above may replace a copy by what it copies, and states must not share memory", true},
  };
  // clang-format on
}

}  // namespace tessera
