#include "tessera/backend/cpu/kernels/x86/batch8/batch8.h"

#include "tessera/backend/cpu/kernels/x86/avx2.h"

namespace tessera::cpu {

TESSERA_AVX2 void add_up_lanes(const float* vectors, int64_t count, float* sums) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4, vectors += 4 * lanes) {
    const __m256 ab = _mm256_hadd_ps(_mm256_loadu_ps(vectors), _mm256_loadu_ps(vectors + 8));
    const __m256 cd = _mm256_hadd_ps(_mm256_loadu_ps(vectors + 16), _mm256_loadu_ps(vectors + 24));
    const __m256 all = _mm256_hadd_ps(ab, cd);
    _mm_storeu_ps(sums + i, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
  }
  for (; i < count; ++i, vectors += lanes) {
    sums[i] = ((vectors[0] + vectors[1]) + (vectors[2] + vectors[3])) +
              ((vectors[4] + vectors[5]) + (vectors[6] + vectors[7]));
  }
}

}  // namespace tessera::cpu
