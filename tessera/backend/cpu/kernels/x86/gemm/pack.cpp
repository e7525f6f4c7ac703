#include "tessera/backend/cpu/kernels/x86/gemm/pack.h"

#include <algorithm>
#include <cstring>

#include "tessera/backend/cpu/kernels/x86/avx2.h"
#include "tessera/backend/cpu/kernels/x86/halves.h"

namespace tessera::cpu {
namespace {

template <typename Element>
void transpose_plainly(const Element* from, int64_t from_stride, int64_t rows, int64_t columns,
                       float* to, int64_t to_stride) {
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) to[j * to_stride + i] = as_float(from[i * from_stride + j]);
}

TESSERA_AVX2_INLINE __m128 load_four(const float* from) { return _mm_loadu_ps(from); }
TESSERA_AVX2_INLINE __m128 load_four(const Half* from) {
  return _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}

// Halves of rows four apart meet while they are loaded, so that all shuffles stay within halves.
template <typename Element>
TESSERA_AVX2 inline void transpose_8x8(const Element* from, int64_t from_stride, float* to,
                                       int64_t to_stride) {
  __m256 row[8];
  for (int i = 0; i < 4; ++i) {
    const Element* upper = from + i * from_stride;
    const Element* lower = from + (i + 4) * from_stride;
    row[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(load_four(upper)), load_four(lower), 1);
    row[i + 4] =
        _mm256_insertf128_ps(_mm256_castps128_ps256(load_four(upper + 4)), load_four(lower + 4), 1);
  }
  for (int half = 0; half < 2; ++half) {
    const __m256* r = row + 4 * half;
    const __m256 low01 = _mm256_unpacklo_ps(r[0], r[1]), high01 = _mm256_unpackhi_ps(r[0], r[1]);
    const __m256 low23 = _mm256_unpacklo_ps(r[2], r[3]), high23 = _mm256_unpackhi_ps(r[2], r[3]);
    float* at = to + 4 * half * to_stride;
    _mm256_storeu_ps(at, _mm256_shuffle_ps(low01, low23, 0x44));
    _mm256_storeu_ps(at + to_stride, _mm256_shuffle_ps(low01, low23, 0xee));
    _mm256_storeu_ps(at + 2 * to_stride, _mm256_shuffle_ps(high01, high23, 0x44));
    _mm256_storeu_ps(at + 3 * to_stride, _mm256_shuffle_ps(high01, high23, 0xee));
  }
}

// The number of rows as a constant makes each copy one or two moves.
template <int rows>
void copy_row_group(const float* from, int64_t depth_stride, int64_t depth, float* to) {
  for (int64_t k = 0; k < depth; ++k)
    std::memcpy(to + k * rows, from + k * depth_stride, rows * sizeof(float));
}

template <int rows>
TESSERA_AVX2 void copy_row_group(const Half* from, int64_t depth_stride, int64_t depth, float* to) {
  for (int64_t k = 0; k < depth; ++k) {
    alignas(32) float wide[avx2::lanes];
    _mm256_store_ps(wide, load_first(from + k * depth_stride, rows));
    std::memcpy(to + k * rows, wide, rows * sizeof(float));
  }
}

template <typename Element>
void pack_row_group(const Element* from, int64_t depth_stride, int64_t rows, int64_t depth,
                    float* to) {
  switch (rows) {
    case 6:
      return copy_row_group<6>(from, depth_stride, depth, to);
    case 5:
      return copy_row_group<5>(from, depth_stride, depth, to);
    case 4:
      return copy_row_group<4>(from, depth_stride, depth, to);
    case 3:
      return copy_row_group<3>(from, depth_stride, depth, to);
    case 2:
      return copy_row_group<2>(from, depth_stride, depth, to);
    default:
      return copy_row_group<1>(from, depth_stride, depth, to);
  }
}

template <typename Element>
TESSERA_AVX2 void transpose_blocks(const Element* from, int64_t from_stride, int64_t rows,
                                   int64_t columns, float* to, int64_t to_stride) {
  const int64_t whole_rows = rows / 8 * 8, whole_columns = columns / 8 * 8;
  // Eight rows at a time: more, a power of two apart, would drive each other from the cache.
  for (int64_t i = 0; i < whole_rows; i += 8) {
    for (int64_t j = 0; j < whole_columns; j += 8)
      transpose_8x8(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
  }
  transpose_plainly(from + whole_columns, from_stride, whole_rows, columns - whole_columns,
                    to + whole_columns * to_stride, to_stride);
  transpose_plainly(from + whole_rows * from_stride, from_stride, rows - whole_rows, columns,
                    to + whole_rows, to_stride);
}

void copy_sixteen(const float* from, float* to) { std::memcpy(to, from, 16 * sizeof(float)); }
void copy_sixteen(const Half* from, float* to) { widen_halves(from, to, 16); }

template <typename Element>
void pack_columns_of(const Element* from, int64_t depth_stride, int64_t column_stride,
                     int64_t depth, int64_t columns, int64_t width, float* to) {
  if (columns < width) {
    for (int64_t k = 0; k < depth; ++k)
      std::fill(to + k * width + columns, to + (k + 1) * width, 0.0F);
  }
  if (depth_stride == 1) return transpose_block(from, column_stride, columns, depth, to, width);
  if (column_stride == 1 && columns == width && width == 16) {
    for (int64_t k = 0; k < depth; ++k) copy_sixteen(from + k * depth_stride, to + k * 16);
    return;
  }
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t j = 0; j < columns; ++j)
      to[k * width + j] = as_float(from[k * depth_stride + j * column_stride]);
}

template <typename Element>
void pack_rows_of(const Element* from, int64_t row_stride, int64_t depth_stride, int64_t tall,
                  int64_t tall_count, int64_t low_count, int64_t depth, float* to) {
  const int64_t count = tall_count + low_count;
  const auto each = [&](auto&& pack) {
    int64_t row = 0;
    for (int64_t tile = 0; tile < count; ++tile) {
      const int64_t rows = tile < tall_count ? tall : tall - 1;
      pack(row, rows);
      row += rows;
    }
  };
  if (row_stride == 1) {
    // A few depths at a time: the lines that hold them serve all tiles. The hardware does not see
    // such short rows coming.
    constexpr int64_t step = 8, line = 64 / sizeof(Element);
    const int64_t all_rows = tall_count * tall + low_count * (tall - 1);
    for (int64_t k = 0; k < depth; k += step) {
      for (int64_t ahead = k + step; ahead < std::min(depth, k + 2 * step); ++ahead)
        for (int64_t i = 0; i < all_rows; i += line)
          __builtin_prefetch(from + ahead * depth_stride + i);
      each([&](int64_t row, int64_t rows) {
        pack_row_group(from + k * depth_stride + row, depth_stride, rows, std::min(step, depth - k),
                       to + row * depth + k * rows);
      });
    }
    return;
  }
  each([&](int64_t row, int64_t rows) {
    float* at = to + row * depth;
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t i = 0; i < rows; ++i)
        *at++ = as_float(from[k * depth_stride + (row + i) * row_stride]);
  });
}

}  // namespace

void transpose_block(const float* from, int64_t from_stride, int64_t rows, int64_t columns,
                     float* to, int64_t to_stride) {
  transpose_blocks(from, from_stride, rows, columns, to, to_stride);
}
void transpose_block(const Half* from, int64_t from_stride, int64_t rows, int64_t columns,
                     float* to, int64_t to_stride) {
  transpose_blocks(from, from_stride, rows, columns, to, to_stride);
}

void pack_columns(const float* from, int64_t depth_stride, int64_t column_stride, int64_t depth,
                  int64_t columns, int64_t width, float* to) {
  pack_columns_of(from, depth_stride, column_stride, depth, columns, width, to);
}
void pack_columns(const Half* from, int64_t depth_stride, int64_t column_stride, int64_t depth,
                  int64_t columns, int64_t width, float* to) {
  pack_columns_of(from, depth_stride, column_stride, depth, columns, width, to);
}

void pack_rows(const float* from, int64_t row_stride, int64_t depth_stride, int64_t tall,
               int64_t tall_count, int64_t low_count, int64_t depth, float* to) {
  pack_rows_of(from, row_stride, depth_stride, tall, tall_count, low_count, depth, to);
}
void pack_rows(const Half* from, int64_t row_stride, int64_t depth_stride, int64_t tall,
               int64_t tall_count, int64_t low_count, int64_t depth, float* to) {
  pack_rows_of(from, row_stride, depth_stride, tall, tall_count, low_count, depth, to);
}

}  // namespace tessera::cpu
