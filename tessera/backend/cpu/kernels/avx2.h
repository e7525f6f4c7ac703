// Small parts of kernels written with AVX2 intrinsics. A function that uses them carries
// TESSERA_AVX2, and so does every function that must be inlined into it (lambdas cannot); it runs
// only where has_avx2() holds.
#pragma once

#include <immintrin.h>

#include <cstdint>

#define TESSERA_AVX2 __attribute__((target("avx2,fma")))

namespace tessera::cpu::avx2 {

constexpr int64_t lanes = 8;

TESSERA_AVX2 inline float sum_of_lanes(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

// The first `count` lanes.
TESSERA_AVX2 inline __m256i mask_of(int64_t count) {
  const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), places);
}

// All lanes, or those of the mask with zeros elsewhere.
template <bool whole>
TESSERA_AVX2 inline __m256 load(const float* x, __m256i mask) {
  return whole ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, mask);
}
template <bool whole>
TESSERA_AVX2 inline void store(float* x, __m256i mask, __m256 v) {
  if (whole) {
    _mm256_storeu_ps(x, v);
  } else {
    _mm256_maskstore_ps(x, mask, v);
  }
}

}  // namespace tessera::cpu::avx2
