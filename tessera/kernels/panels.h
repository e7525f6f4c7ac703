// The innermost loop of matrix products: a panel of some rows times a panel of some columns, all
// sums in registers.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/cpu_level.h"
#include "tessera/base/stochastic_rounding.h"

namespace tessera::kernels {

// A panel of the left side is 6 rows high and one of the right 16 columns wide: 12 registers of 8
// sums, which leaves room for the operands.
constexpr int64_t panel_rows = 6;
constexpr int64_t panel_cols = 16;

// sums[panel_rows][panel_cols] = a panel of each side multiplied over `depth`.
using PanelKernel = void (*)(const float* a, const float* b, int64_t depth, float* sums);

// The same with sums in halves (partials.h): a panel of each side, cut into blocks along the depth.
struct HalfPanels {
  const float *a, *b;
  std::span<const int32_t> blocks;  // how deep they are
  // One for each block where they are rounded by chance, or null; and the numbers of the first sum
  // and of the one below it among all of the product.
  const RoundingStream* streams;
  uint32_t first_sum, row_step;
};

// sums[panel_rows][panel_cols], which are halves, with the blocks added to them.
using HalfPanelKernel = void (*)(const HalfPanels& panels, float* sums);

// The best ones up to that level.
PanelKernel panel_kernel(CpuLevel level);
HalfPanelKernel half_panel_kernel(CpuLevel level);

// Those for AVX2; null where the machine is of another kind.
PanelKernel avx2_panel_kernel();
HalfPanelKernel avx2_half_panel_kernel();

}  // namespace tessera::kernels
