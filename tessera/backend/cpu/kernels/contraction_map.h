// When the rows `<contraction>_map` are worth having: what they do with the contraction's result
// while it lies in the cache.
#pragma once

#include "tessera/backend/cpu/kernels/table.h"

namespace tessera::cpu {

// Whether a kernel that takes such epilogue goes on with each box of its result.
bool may_go_on(EpilogueKind epilogue, const KernelUse& use);

// Whether a kernel that takes such epilogue is faster than the contraction and the body one by one.
bool pays(EpilogueKind epilogue, const KernelUse& use);

}  // namespace tessera::cpu
