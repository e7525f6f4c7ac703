// Small parts of kernels written with AVX2 intrinsics. A function that uses them carries
// TESSERA_AVX2, and so does every function that must be inlined into it (lambdas cannot); it runs
// only at CpuLevel::avx2 and above, which is what every entry in this folder needs.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <limits>

#define TESSERA_AVX2 __attribute__((target("avx2,fma,f16c")))
#define TESSERA_AVX2_INLINE __attribute__((target("avx2,fma,f16c"), always_inline)) inline

namespace tessera::cpu::avx2 {

constexpr int64_t lanes = 8;

TESSERA_AVX2 inline float sum_of_lanes(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

TESSERA_AVX2 inline float largest_of_lanes(__m256 v) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
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

// Eight elements `stride` apart, `places` being their distances from the first; nothing beyond the
// last is touched.
TESSERA_AVX2 inline __m256 load_strided(const float* x, int64_t stride, __m256i places) {
  if (stride == 1) return _mm256_loadu_ps(x);
  if (stride == 2) {
    const __m256 mixed = _mm256_shuffle_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 7), 0xD8);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xD8));
  }
  return _mm256_i32gather_ps(x, places, 4);
}

TESSERA_AVX2 inline __m256 lowest() {
  return _mm256_set1_ps(-std::numeric_limits<float>::infinity());
}
// Elements beyond the row read as the lowest number: they add nothing.
TESSERA_AVX2 inline __m256 load_or_lowest(const float* x, __m256i mask) {
  return _mm256_blendv_ps(lowest(), _mm256_maskload_ps(x, mask), _mm256_castsi256_ps(mask));
}

// exp(x) for x <= 88, by the arithmetic of kernels/vector_math.h; 0 below -87. NaN stays NaN.
TESSERA_AVX2 inline __m256 exp_of(__m256 x) {
  const __m256 lowest = _mm256_set1_ps(-87.0F);
  const __m256 inside = _mm256_max_ps(lowest, x);
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(inside, _mm256_set1_ps(1.44269504F)),
                                   _MM_FROUND_TO_NEAREST_INT);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145752F), inside);  // ln 2 in two parts
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6F), r);
  __m256 p = _mm256_set1_ps(1.0F / 5040);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 720));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 120));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 24));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 6));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5F));
  p = _mm256_fmadd_ps(_mm256_mul_ps(p, r), r, r);
  const __m256i power = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  const __m256 scale = _mm256_castsi256_ps(_mm256_slli_epi32(power, 23));
  const __m256 below = _mm256_cmp_ps(x, lowest, _CMP_LT_OQ);
  return _mm256_andnot_ps(below, _mm256_fmadd_ps(scale, p, scale));
}

// exp(x) for any x. No logarithm of a softmax is above 0, but nothing checks what a program passes.
TESSERA_AVX2 inline __m256 exp_of_any(__m256 x) {
  const __m256 infinity = _mm256_set1_ps(std::numeric_limits<float>::infinity());
  return _mm256_blendv_ps(exp_of(x), infinity, _mm256_cmp_ps(x, _mm256_set1_ps(88), _CMP_GT_OQ));
}

// log(x) of positive numbers that are neither infinite nor denormal. NaN stays NaN.
TESSERA_AVX2 inline __m256 log_of(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i exponent =
      _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_castps_si256(_mm256_set1_ps(0.75F))), 23);
  const __m256 m = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(exponent, 23)));
  const __m256 one = _mm256_set1_ps(1);
  const __m256 z = _mm256_div_ps(_mm256_sub_ps(m, one), _mm256_add_ps(m, one));
  const __m256 zz = _mm256_mul_ps(z, z);
  __m256 p = _mm256_set1_ps(2.0F / 9);
  p = _mm256_fmadd_ps(p, zz, _mm256_set1_ps(2.0F / 7));
  p = _mm256_fmadd_ps(p, zz, _mm256_set1_ps(2.0F / 5));
  p = _mm256_fmadd_ps(p, zz, _mm256_set1_ps(2.0F / 3));
  p = _mm256_fmadd_ps(p, zz, _mm256_set1_ps(2));
  const __m256 nan_if_nan = _mm256_sub_ps(x, x);
  const __m256 whole =
      _mm256_fmadd_ps(_mm256_cvtepi32_ps(exponent), _mm256_set1_ps(0.693147181F), nan_if_nan);
  return _mm256_fmadd_ps(p, z, whole);
}

}  // namespace tessera::cpu::avx2
