#include "tessera/kernels/panels.h"

#include <immintrin.h>

#include "tessera/kernels/avx2_copy.h"
#include "tessera/kernels/x86/vector_rounding.h"

namespace tessera::kernels {
namespace {

using Sums = __m256[panel_rows][2];

// Adds up products from zero on; then a and b are behind them.
TESSERA_AVX2_COPY_INLINE void sum_products(const float*& a, const float*& b, int64_t depth,
                                           Sums& local) {
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
}

TESSERA_AVX2_COPY void multiply_panels_avx2(const float* a, const float* b, int64_t depth,
                                            float* sums) {
  Sums local;
  sum_products(a, b, depth, local);
#pragma GCC unroll 6
  for (int64_t i = 0; i < panel_rows; ++i) {
    _mm256_storeu_ps(sums + i * panel_cols, local[i][0]);
    _mm256_storeu_ps(sums + i * panel_cols + 8, local[i][1]);
  }
}

struct Nearest {
  TESSERA_AVX2_COPY_INLINE __m256 operator()(__m256 value, int64_t, int64_t) const {
    return _mm256_cvtph_ps(_mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
};

class ByChance {
 public:
  TESSERA_AVX2_COPY_INLINE ByChance(const HalfPanels& panels, size_t block)
      : rounding_(panels.streams[block], 1),
        first_sum_(panels.first_sum),
        row_step_(panels.row_step) {}

  TESSERA_AVX2_COPY_INLINE __m256 operator()(__m256 value, int64_t row, int64_t half) const {
    return rounding_.rounded_floats(value, first_sum_ + row * row_step_ + half * 8);
  }

 private:
  VectorRounding rounding_;
  int64_t first_sum_, row_step_;
};

template <typename Rounding>
TESSERA_AVX2_COPY_INLINE void add_block(const Sums& local, const Rounding& rounded, float* sums) {
#pragma GCC unroll 6
  for (int64_t i = 0; i < panel_rows; ++i) {
    for (int64_t half = 0; half < 2; ++half) {
      float* at = sums + i * panel_cols + half * 8;
      const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(at), local[i][half]);
      _mm256_storeu_ps(at, rounded(sum, i, half));
    }
  }
}

TESSERA_AVX2_COPY void add_half_panels_avx2(const HalfPanels& panels, float* sums) {
  const float *a = panels.a, *b = panels.b;
  for (size_t block = 0; block < panels.blocks.size(); ++block) {
    Sums local;
    sum_products(a, b, panels.blocks[block], local);
    if (panels.streams) {
      add_block(local, ByChance(panels, block), sums);
    } else {
      add_block(local, Nearest(), sums);
    }
  }
}

}  // namespace

HalfPanelKernel avx2_half_panel_kernel() { return add_half_panels_avx2; }
PanelKernel avx2_panel_kernel() { return multiply_panels_avx2; }

}  // namespace tessera::kernels
