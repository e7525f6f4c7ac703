// The rows `<contraction>_map` by the kernels of the contraction.
#pragma once

#include "tessera/backend/cpu/kernels/table.h"

namespace tessera::cpu {

// Whether a kernel that takes such tails is faster than the contraction and the body one by one.
bool pays(Tails tails, const KernelUse& use);

}  // namespace tessera::cpu
