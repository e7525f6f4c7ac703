// What the rows of indexing share. Indices are data: kernels check them against the dimension they
// index while the program runs.
#pragma once

#include <string_view>
#include <vector>

#include "tessera/ops/op_def.h"

namespace tessera::index_parts {

// Rows of the family that have a file of their own.
std::vector<OpDef> gather_and_scatter_rows();

void check_index(const TensorType& index, std::string_view what);
void check_same_dtype(const TensorType& a, const TensorType& b, std::string_view what);

int64_t dim_of(const Attrs& attrs, size_t rank);
int64_t dim_of(const KernelCall& call, const TensorView& x);

// What an operator that changes some places of its first operand starts from.
const TensorView& start_from_first(const KernelCall& call);

Cost cost_of_gather(const OpView& op, std::span<const TensorType> results);

// For operators that write one operand into another.
template <size_t written>
Cost cost_of_scatter(const OpView& op, std::span<const TensorType>) {
  return GatherCost{numel(op.shape(written)), 2 * bytes(op.type(written))};
}

// Of operators that combine what arrives with what is there: by the attribute `reduce`.
AttrSchema reduce_attrs();
void check_reduce(const Attrs& attrs);
// Of whole slices along a dimension, or of single elements.
std::vector<Sample> reduce_samples(bool slices);

}  // namespace tessera::index_parts
