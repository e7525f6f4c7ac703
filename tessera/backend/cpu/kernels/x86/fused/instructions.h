// The element-wise rows that have code of their own in fused loops: an ordered table from names and
// types of arguments to what writes the instructions.
#pragma once

#include <span>

#include "tessera/backend/cpu/kernels/x86/fused/step.h"

namespace tessera::cpu {

// Null where there is no code for a use of a row with arguments of these types.
EmitStep find_instruction(const BodyStep& step, std::span<const DType> arguments);

}  // namespace tessera::cpu
