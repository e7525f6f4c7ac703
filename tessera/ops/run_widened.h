// Runs any row's reference kernel on tensors of half precision: operands are widened to f32, the
// kernel runs in f32, and each result is rounded once when it is stored. That is what half
// precision means for every operator that has no kernel of its own for it.
#pragma once

#include "tessera/ops/op_def.h"

namespace tessera {

// Operands and results of other types are passed on as they are. A result may lie over an operand
// where the row allows it. Widened tensors take scratch memory of the calling thread.
void run_widened(const OpDef& op, const KernelCall& call);

}  // namespace tessera
