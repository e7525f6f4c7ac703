// Contractions with a body of element-wise steps that goes on with the result: rows
// `<contraction>_map`. Operands are those of the contraction, then those of the body; in the body
// a0 is the contraction's result, a1 the first operand after the contraction's own. Operands of the
// contraction may be halves: they are widened, which is exact.
#pragma once

#include <cstddef>

#include "tessera/ops/op_def.h"

namespace tessera {

// The row that goes on with a contraction's result, be it one of halves; null where there is none.
const OpDef* map_of_contraction(const OpDef& contraction);

// The contraction that a row begins with; null for other rows.
const OpDef* contraction_of_map(const OpDef& row);

// How many operands are a contraction's own; all of them are there, some perhaps left out.
size_t operand_count(const OpDef& contraction);

}  // namespace tessera
