// The innermost loop of matrix products: a panel of some rows times a panel of some columns, all
// sums in registers.
#pragma once

#include <cstdint>

#include "tessera/base/cpu_level.h"

namespace tessera::kernels {

// A panel of the left side is 6 rows high and one of the right 16 columns wide: 12 registers of 8
// sums, which leaves room for the operands.
constexpr int64_t panel_rows = 6;
constexpr int64_t panel_cols = 16;

// sums[panel_rows][panel_cols] = a panel of each side multiplied over `depth`.
using PanelKernel = void (*)(const float* a, const float* b, int64_t depth, float* sums);

// The best one up to that level.
PanelKernel panel_kernel(CpuLevel level);

// The one for AVX2; null where the machine is of another kind.
PanelKernel avx2_panel_kernel();

}  // namespace tessera::kernels
