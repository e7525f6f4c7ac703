// The entries of argmax and argmin, and of max and min along a dimension.
#pragma once

#include <span>

#include "tessera/backend/cpu/kernels/table.h"

namespace tessera::cpu {

std::span<const KernelEntry> extremes_entries();

}  // namespace tessera::cpu
