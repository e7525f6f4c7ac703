// Operands as kernels would see them if nobody asked for a layout: for rewrites that depend on
// which kernel a node will have.
#pragma once

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/ir/graph.h"

namespace tessera::cpu {

// Of a value, or of none.
KernelOperand likely_operand(const Graph& graph, ValueId value);

}  // namespace tessera::cpu
