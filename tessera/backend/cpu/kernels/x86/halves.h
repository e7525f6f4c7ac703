// Halves as vectors of floats: what is read is widened, what is written rounded, to the nearest or
// by chance.
#pragma once

#include <cstring>

#include "tessera/backend/cpu/kernels/x86/avx2.h"
#include "tessera/base/half.h"
#include "tessera/base/stochastic_rounding.h"

namespace tessera::cpu {

// Eight of them, as floats; of floats as they are.
TESSERA_AVX2_INLINE __m256 load_eight(const float* from) { return _mm256_loadu_ps(from); }
TESSERA_AVX2_INLINE __m256 load_eight(const Half* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// One of them.
inline float as_float(float value) { return value; }
inline float as_float(Half value) { return to_float(value); }

// The first `count` of them, below eight, and zeros.
TESSERA_AVX2_INLINE __m256 load_first(const float* from, int64_t count) {
  return _mm256_maskload_ps(from, avx2::mask_of(count));
}
TESSERA_AVX2_INLINE __m256 load_first(const Half* from, int64_t count) {
  Half room[avx2::lanes] = {};
  std::memcpy(room, from, static_cast<size_t>(count) * sizeof(Half));
  return load_eight(room);
}

// They do not overlap.
void widen_halves(const Half* from, float* to, int64_t count);
void narrow_floats(const float* from, Half* to, int64_t count);  // to the nearest
// to[j * to_stride + i] = from[i * from_stride + j] for i < rows, j < columns.
void transpose_halves(const Half* from, int64_t from_stride, int64_t rows, int64_t columns,
                      Half* to, int64_t to_stride);

// Rounds eight elements by chance, as base/stochastic_rounding.h does one.
class VectorRounding {
 public:
  // `distance`: between the numbers of two neighbours, in row-major order.
  TESSERA_AVX2_INLINE VectorRounding(const RoundingStream& stream, int64_t distance) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const auto apart = static_cast<uint32_t>(distance) * RoundingWord::step;
    const __m256i places = _mm256_mullo_epi32(lanes, all(apart));
    first_ = _mm256_add_epi32(places, all(stream.first));
    second_ = all(stream.second);
  }

  // `number`: of the first element.
  TESSERA_AVX2_INLINE __m128i rounded(__m256 x, int64_t number) const {
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
    __m256 y = _mm256_cvtph_ps(_mm256_cvtps_ph(sum, _MM_FROUND_TO_ZERO));
    // Never infinite where the number is not; a NaN, in the second operand, stays.
    const __m256 large = _mm256_cmp_ps(size, _mm256_set1_ps(65520), _CMP_GE_OQ);
    y = _mm256_max_ps(_mm256_and_ps(large, exponent), y);
    return _mm256_cvtps_ph(_mm256_or_ps(y, _mm256_and_ps(x, sign)), _MM_FROUND_TO_NEAREST_INT);
  }

 private:
  TESSERA_AVX2_INLINE static __m256i all(uint32_t value) {
    return _mm256_set1_epi32(static_cast<int>(value));
  }

  __m256i first_, second_;
};

}  // namespace tessera::cpu
