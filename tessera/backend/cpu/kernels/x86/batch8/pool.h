// Max pooling over images in batch_layout.
#pragma once

#include <vector>

#include "tessera/backend/cpu/kernels/table.h"

namespace tessera::cpu {

std::vector<KernelEntry> batch8_pool_entries();

}  // namespace tessera::cpu
