#include "tessera/kernels/reduce.h"

#include "tessera/base/scratch.h"

namespace tessera {
namespace {

constexpr int64_t piece_elements = 16384;
// A fold is only cut where it is long: every cut costs a round of joining.
constexpr int64_t longest_uncut_fold = 65536;

}  // namespace

ReducePlan plan_reduction(const TensorView& input, std::span<const int64_t> dims) {
  const size_t rank = input.sizes.size();
  ScratchVector<bool> folds(rank, dims.empty());
  for (const int64_t dim : dims) {
    if (rank > 0) folds[static_cast<size_t>(dim)] = true;
  }
  ReducePlan plan;
  for (size_t i = 0; i < rank; ++i) {
    if (input.sizes[i] != 1) plan.folds_rows = folds[i];
    (folds[i] ? plan.folded : plan.results) *= input.sizes[i];
  }
  for (const bool folded : {!plan.folds_rows, plan.folds_rows}) {
    for (size_t i = 0; i < rank; ++i) {
      if (folds[i] != folded) continue;
      plan.shape.push_back(input.sizes[i]);
      plan.strides.push_back(input.strides[i]);
    }
  }
  if (plan.folds_rows) {
    plan.folded_per_piece = plan.folded <= longest_uncut_fold ? plan.folded : piece_elements;
    plan.results_per_piece = piece_elements / std::max<int64_t>(plan.folded_per_piece, 1);
  } else {
    plan.results_per_piece = std::min(plan.results, detail::reduce_columns);
    const int64_t columns = std::max<int64_t>(1, plan.results_per_piece);
    const int64_t rows = std::max<int64_t>(1, longest_uncut_fold / columns);
    plan.folded_per_piece = std::min(plan.folded, rows);
  }
  plan.folded_per_piece = std::max<int64_t>(plan.folded_per_piece, 1);
  plan.results_per_piece = std::max<int64_t>(plan.results_per_piece, 1);
  return plan;
}

}  // namespace tessera
