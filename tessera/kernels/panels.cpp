#include "tessera/kernels/panels.h"

#include <cstring>

namespace tessera::kernels {
namespace {

void multiply_panels(const float* a, const float* b, int64_t depth, float* sums) {
  float local[panel_rows][panel_cols] = {};
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t i = 0; i < panel_rows; ++i) {
      for (int64_t j = 0; j < panel_cols; ++j) local[i][j] += a[i] * b[j];
    }
    a += panel_rows;
    b += panel_cols;
  }
  std::memcpy(sums, local, sizeof local);
}

void add_half_panels(const HalfPanels& panels, float* sums) {
  const float *a = panels.a, *b = panels.b;
  for (size_t block = 0; block < panels.blocks.size(); ++block) {
    float local[panel_rows * panel_cols];
    multiply_panels(a, b, panels.blocks[block], local);
    a += panels.blocks[block] * panel_rows;
    b += panels.blocks[block] * panel_cols;
    if (!panels.streams) {
      for (int64_t i = 0; i < panel_rows * panel_cols; ++i) {
        sums[i] = rounded_to_half(sums[i] + local[i]);
      }
      continue;
    }
    for (int64_t i = 0; i < panel_rows * panel_cols; ++i) {
      const auto row = static_cast<uint32_t>(i / panel_cols);
      const auto col = static_cast<uint32_t>(i % panel_cols);
      const uint32_t sum = panels.first_sum + row * panels.row_step + col;
      const uint32_t word = rounding_word(panels.streams[block], sum);
      sums[i] = to_float(to_half(sums[i] + local[i], word));
    }
  }
}

}  // namespace

PanelKernel panel_kernel(CpuLevel level) {
  return level >= CpuLevel::avx2 ? avx2_panel_kernel() : multiply_panels;
}

HalfPanelKernel half_panel_kernel(CpuLevel level) {
  return level >= CpuLevel::avx2 ? avx2_half_panel_kernel() : add_half_panels;
}

}  // namespace tessera::kernels
