// Group norm over images in batch_layout, and the sums of their channels.
#pragma once

#include <vector>

#include "tessera/backend/cpu/kernels/table.h"

namespace tessera::cpu {

std::vector<KernelEntry> batch8_norm_entries();

}  // namespace tessera::cpu
