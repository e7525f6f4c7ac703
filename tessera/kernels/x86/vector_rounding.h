// Rounding to halves by chance, in vectors.
#pragma once

#include <immintrin.h>

#include "tessera/base/stochastic_rounding.h"
#include "tessera/kernels/avx2_copy.h"

namespace tessera::kernels {

// Rounds eight elements by chance, as base/stochastic_rounding.h does one.
class VectorRounding {
 public:
  // `distance`: between the numbers of two neighbours, in row-major order.
  TESSERA_AVX2_COPY_INLINE VectorRounding(const RoundingStream& stream, int64_t distance) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const auto apart = static_cast<uint32_t>(distance) * RoundingWord::step;
    const __m256i places = _mm256_mullo_epi32(lanes, all(apart));
    first_ = _mm256_add_epi32(places, all(stream.first));
    second_ = all(stream.second);
  }

  // `number`: of the first element.
  TESSERA_AVX2_COPY_INLINE __m128i rounded(__m256 x, int64_t number) const {
    return _mm256_cvtps_ph(moved(x, number), _MM_FROUND_TO_ZERO);
  }

  // The same as floats.
  TESSERA_AVX2_COPY_INLINE __m256 rounded_floats(__m256 x, int64_t number) const {
    return _mm256_cvtph_ps(rounded(x, number));
  }

 private:
  // Away from zero by chance: what is left without the bits that a half has not is the result.
  TESSERA_AVX2_COPY_INLINE __m256 moved(__m256 x, int64_t number) const {
    const __m256i from = all(static_cast<uint32_t>(number) * RoundingWord::step);
    __m256i word = _mm256_xor_si256(_mm256_add_epi32(first_, from), second_);
    word = _mm256_xor_si256(word, _mm256_srli_epi32(word, RoundingWord::shift));
    word = _mm256_mullo_epi32(word, all(RoundingWord::factor));
    const __m256 chance = _mm256_cvtepi32_ps(_mm256_srli_epi32(word, 32 - RoundingWord::bits));
    const __m256 exponent = _mm256_castsi256_ps(all(0x7F800000U));
    const __m256 sign = _mm256_castsi256_ps(all(0x80000000U));
    const __m256i last =
        _mm256_sub_epi32(_mm256_castps_si256(_mm256_and_ps(x, exponent)), all(23U << 23));
    const __m256 last_bit = _mm256_max_ps(_mm256_castsi256_ps(last), _mm256_set1_ps(0x1p-37F));
    const __m256 size = _mm256_andnot_ps(sign, x);
    const __m256 sum = _mm256_fmadd_ps(chance, last_bit, size);
    // Cutting off makes nothing infinite. A NaN, in the second operand, stays.
    const __m256 large = _mm256_cmp_ps(size, _mm256_set1_ps(65520), _CMP_GE_OQ);
    const __m256 y = _mm256_max_ps(_mm256_and_ps(large, exponent), sum);
    return _mm256_or_ps(y, _mm256_and_ps(x, sign));
  }

  TESSERA_AVX2_COPY_INLINE static __m256i all(uint32_t value) {
    return _mm256_set1_epi32(static_cast<int>(value));
  }

  __m256i first_, second_;
};

}  // namespace tessera::kernels
