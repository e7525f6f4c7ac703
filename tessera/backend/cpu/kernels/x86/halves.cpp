#include "tessera/backend/cpu/kernels/x86/halves.h"

namespace tessera::cpu {
namespace {

// Pairs of elements, then of pairs, then of those.
TESSERA_AVX2 inline void transpose_8x8(const Half* from, int64_t from_stride, Half* to,
                                       int64_t to_stride) {
  __m128i row[8], pair[8], four[8];
  for (int i = 0; i < 8; ++i) {
    row[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * from_stride));
  }
  for (int i = 0; i < 4; ++i) {
    pair[i] = _mm_unpacklo_epi16(row[2 * i], row[2 * i + 1]);
    pair[i + 4] = _mm_unpackhi_epi16(row[2 * i], row[2 * i + 1]);
  }
  for (int i = 0; i < 8; i += 2) {
    four[i] = _mm_unpacklo_epi32(pair[i], pair[i + 1]);
    four[i + 1] = _mm_unpackhi_epi32(pair[i], pair[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int k = 0; k < 2; ++k) {
      auto* at = to + (i + 2 * k) * to_stride;
      const __m128i first = _mm_unpacklo_epi64(four[i + k], four[i + k + 2]);
      const __m128i second = _mm_unpackhi_epi64(four[i + k], four[i + k + 2]);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(at), first);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(at + to_stride), second);
    }
  }
}

void transpose_plainly(const Half* from, int64_t from_stride, int64_t rows, int64_t columns,
                       Half* to, int64_t to_stride) {
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) to[j * to_stride + i] = from[i * from_stride + j];
}

}  // namespace

TESSERA_AVX2 void widen_halves(const Half* from, float* to, int64_t count) {
  const int64_t whole = count / avx2::lanes * avx2::lanes;
  for (int64_t i = 0; i < whole; i += avx2::lanes) _mm256_storeu_ps(to + i, load_eight(from + i));
  for (int64_t i = whole; i < count; ++i) to[i] = to_float(from[i]);
}

TESSERA_AVX2 void transpose_halves(const Half* from, int64_t from_stride, int64_t rows,
                                   int64_t columns, Half* to, int64_t to_stride) {
  const int64_t whole_rows = rows / 8 * 8, whole_columns = columns / 8 * 8;
  for (int64_t i = 0; i < whole_rows; i += 8) {
    for (int64_t j = 0; j < whole_columns; j += 8)
      transpose_8x8(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
  }
  transpose_plainly(from + whole_columns, from_stride, whole_rows, columns - whole_columns,
                    to + whole_columns * to_stride, to_stride);
  transpose_plainly(from + whole_rows * from_stride, from_stride, rows - whole_rows, columns,
                    to + whole_rows, to_stride);
}

TESSERA_AVX2 void narrow_floats(const float* from, Half* to, int64_t count) {
  const int64_t whole = count / avx2::lanes * avx2::lanes;
  for (int64_t i = 0; i < whole; i += avx2::lanes) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
  }
  for (int64_t i = whole; i < count; ++i) to[i] = to_half(from[i]);
}

}  // namespace tessera::cpu
