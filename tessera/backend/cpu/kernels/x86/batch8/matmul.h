// Products of features in batch_layout with a matrix.
#pragma once

#include <vector>

#include "tessera/backend/cpu/kernels/table.h"

namespace tessera::cpu {

std::vector<KernelEntry> batch8_matmul_entries();

}  // namespace tessera::cpu
