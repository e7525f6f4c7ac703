// The rows `<contraction>_map` by the kernels of the contraction.
#pragma once

#include "tessera/backend/cpu/kernels/table.h"

namespace tessera::cpu {

// Whether to do the body of a use with boxes of the result, by a kernel that takes such tails.
bool pays(Tails tails, const KernelUse& use);

}  // namespace tessera::cpu
