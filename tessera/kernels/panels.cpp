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

}  // namespace

PanelKernel panel_kernel(CpuLevel level) {
  return level >= CpuLevel::avx2 ? avx2_panel_kernel() : multiply_panels;
}

}  // namespace tessera::kernels
