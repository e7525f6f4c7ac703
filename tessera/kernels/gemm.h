// Matrix products in float32, blocked for caches and registers. A side of the product says itself
// how its values are packed into panels, so that a convolution is a product without its patches
// ever being written out. Sums run over blocks of the depth in order: the same bits for any number
// of threads. They are floats, or halves (partials.h).
#pragma once

#include <cstdint>

#include "tessera/base/scratch.h"
#include "tessera/base/tensor_view.h"
#include "tessera/base/thread_pool.h"
#include "tessera/kernels/partials.h"

namespace tessera::kernels {

struct Range {
  int64_t begin = 0, end = 0;

  int64_t count() const { return end - begin; }
};

// The left matrix as rows or the right one as columns: lines of equal depth.
class Lines {
 public:
  virtual ~Lines() = default;
  // Writes a block as panels of `width` lines: panel after panel, in each panel one depth after the
  // other, the values of its lines next to each other. Lines that fill up the last panel are zero.
  virtual void pack(Range lines, Range depth, int64_t width, float* to) const = 0;
};

// Lines in memory at fixed distances.
class StridedLines : public Lines {
 public:
  StridedLines(const float* data, int64_t line_stride, int64_t depth_stride)
      : data_(data), line_stride_(line_stride), depth_stride_(depth_stride) {}
  void pack(Range lines, Range depth, int64_t width, float* to) const override;

 private:
  const float* data_;
  int64_t line_stride_, depth_stride_;
};

// How large a piece of a product one thread takes.
struct ProductTiles {
  int64_t row_step, col_step, row_tiles, col_tiles;

  // `copies` products of this size are computed side by side.
  ProductTiles(int64_t rows, int64_t cols, int64_t copies);
  int64_t count() const { return row_tiles * col_tiles; }
  Range rows(int64_t tile, int64_t total) const;
  Range cols(int64_t tile, int64_t total) const;
};

// out[i * out_stride + j] = the sum over depth of rows' line i times cols' line j, counted from the
// beginning of the ranges. Runs on the calling thread.
void multiply(const Lines& left, Range rows, const Lines& right, Range cols, Range depth,
              float* out, int64_t out_stride, CpuLevel level);

// What sums in halves depend on beside their factors.
struct HalfSums {
  const Partials& partials;
  PartialBlocks blocks;
  int64_t cols;       // of the whole product
  int64_t first = 0;  // the number of its first sum, where there are several products
};

// The same with sums in halves, over some stretches of the depth.
void multiply(const Lines& left, Range rows, const Lines& right, Range cols, const HalfSums& sums,
              Range stretches, float* out, int64_t out_stride, CpuLevel level);

// All columns of a right matrix that is multiplied many times, packed once.
class PackedColumns {
 public:
  PackedColumns(const Lines& columns, int64_t count, int64_t depth, ThreadPool& pool);

  // As multiply() for these columns and their whole depth. Runs on the calling thread.
  void multiply(const Lines& left, Range rows, float* out, int64_t out_stride) const;

 private:
  int64_t count_, depth_;
  CpuLevel level_;
  ScratchVector<float> panels_;  // one block of the depth after the other
};

// out = a b for matrices, or for each pair of two batches of matrices. Types: f32 and integers.
void matmul(const TensorView& a, const TensorView& b, const TensorView& out, ThreadPool& pool,
            const Partials& partials = {});

}  // namespace tessera::kernels
