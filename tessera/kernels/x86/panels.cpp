#include "tessera/kernels/panels.h"

#include <immintrin.h>

#include "tessera/kernels/avx2_copy.h"

namespace tessera::kernels {
namespace {

TESSERA_AVX2_COPY void multiply_panels_avx2(const float* a, const float* b, int64_t depth,
                                            float* sums) {
  __m256 local[panel_rows][2];
  for (auto& row : local) row[0] = row[1] = _mm256_setzero_ps();
  for (int64_t k = 0; k < depth; ++k) {
    const __m256 b0 = _mm256_loadu_ps(b);
    const __m256 b1 = _mm256_loadu_ps(b + 8);
#pragma GCC unroll 6
    for (int64_t i = 0; i < panel_rows; ++i) {
      const __m256 value = _mm256_broadcast_ss(a + i);
      local[i][0] = _mm256_fmadd_ps(value, b0, local[i][0]);
      local[i][1] = _mm256_fmadd_ps(value, b1, local[i][1]);
    }
    a += panel_rows;
    b += panel_cols;
  }
#pragma GCC unroll 6
  for (int64_t i = 0; i < panel_rows; ++i) {
    _mm256_storeu_ps(sums + i * panel_cols, local[i][0]);
    _mm256_storeu_ps(sums + i * panel_cols + 8, local[i][1]);
  }
}

}  // namespace

PanelKernel avx2_panel_kernel() { return multiply_panels_avx2; }

}  // namespace tessera::kernels
