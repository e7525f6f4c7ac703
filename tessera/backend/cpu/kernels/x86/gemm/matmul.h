// The rows `matmul` and, for the bodies of linear layers, `matmul_map` by our own matrix products.
#pragma once

#include "tessera/backend/cpu/kernels/table.h"

namespace tessera::cpu {

bool packed_matmul_applies(const KernelUse& use);
std::unique_ptr<PreparedKernel> prepare_packed_matmul(const KernelUse& use);

// Where the body adds a bias, takes the positive part, or both: the code of the tiles does it.
bool packed_linear_applies(const KernelUse& use);
std::unique_ptr<PreparedKernel> prepare_packed_linear(const KernelUse& use);

}  // namespace tessera::cpu
