// Halves as vectors of floats: what is read is widened, what is written rounded, to the nearest or
// by chance.
#pragma once

#include <cstring>

#include "tessera/backend/cpu/kernels/x86/avx2.h"
#include "tessera/base/half.h"
#include "tessera/kernels/x86/vector_rounding.h"

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

using kernels::VectorRounding;

}  // namespace tessera::cpu
