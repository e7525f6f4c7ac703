// Rows that read halves as they lie in memory where another row reads f32: `<row>_of_halves`. Any
// of their operands may be f16; it is widened, which is exact, and the results are the row's own.
// They are for lowering: a kernel that widens while it reads needs no copy in f32.
//
// Those of optimisers' updates also round: a result has the type of what it replaces. With `keys`,
// one for each result of halves, they do so by chance (base/stochastic_rounding.h). After the row's
// operands there may be one more, a number that the gradient is multiplied with first.
#pragma once

#include "tessera/ops/op_def.h"

namespace tessera {

// The row that reads halves where `row` reads f32; null where there is none.
const OpDef* row_of_halves(const OpDef& row);

// The row that one of halves does the same as; null for other rows.
const OpDef* row_in_single(const OpDef& of_halves);

// As the row in f32 sees its operands.
std::optional<TensorType> in_single(std::optional<TensorType> type);

// The same with halves for floats.
Sample sample_of_halves(Sample sample);

}  // namespace tessera
