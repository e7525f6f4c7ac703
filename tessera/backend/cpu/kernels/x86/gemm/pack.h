// Brings parts of matrices into the order in which the inner loops of products read them. Halves
// are widened on the way.
#pragma once

#include <cstdint>

#include "tessera/base/half.h"

namespace tessera::cpu {

// to[j * to_stride + i] = from[i * from_stride + j] for i < rows, j < columns.
void transpose_block(const float* from, int64_t from_stride, int64_t rows, int64_t columns,
                     float* to, int64_t to_stride);
void transpose_block(const Half* from, int64_t from_stride, int64_t rows, int64_t columns,
                     float* to, int64_t to_stride);

// One panel of the right matrix: depth after depth, `width` (a multiple of 8) columns each, zeros
// where there are fewer columns.
void pack_columns(const float* from, int64_t depth_stride, int64_t column_stride, int64_t depth,
                  int64_t columns, int64_t width, float* to);
void pack_columns(const Half* from, int64_t depth_stride, int64_t column_stride, int64_t depth,
                  int64_t columns, int64_t width, float* to);

// The left matrix as tiles of at most 8 rows: `tall_count` of one height, then `low_count` one row
// lower. Tile after tile; in each, depth after depth, the elements of its rows.
void pack_rows(const float* from, int64_t row_stride, int64_t depth_stride, int64_t tall,
               int64_t tall_count, int64_t low_count, int64_t depth, float* to);
void pack_rows(const Half* from, int64_t row_stride, int64_t depth_stride, int64_t tall,
               int64_t tall_count, int64_t low_count, int64_t depth, float* to);

}  // namespace tessera::cpu
