// The row `matmul` by our own matrix products.
#pragma once

#include "tessera/backend/cpu/kernels/table.h"

namespace tessera::cpu {

bool packed_matmul_applies(const KernelUse& use);
std::unique_ptr<PreparedKernel> prepare_packed_matmul(const KernelUse& use);

}  // namespace tessera::cpu
