#include "tessera/kernels/gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "tessera/base/divided_up.h"
#include "tessera/base/error.h"
#include "tessera/kernels/panels.h"

namespace tessera::kernels {
namespace {

constexpr int64_t block_depth = 256;
constexpr int64_t max_tile_rows = 96;
constexpr int64_t max_tile_cols = 384;
constexpr int64_t wanted_tiles = 16;

float* scratch(std::vector<float>& memory, int64_t count) {
  if (static_cast<int64_t>(memory.size()) < count) memory.resize(static_cast<size_t>(count));
  return memory.data();
}

void store_sums(const float* sums, int64_t rows, int64_t cols, bool add, float* out,
                int64_t out_stride) {
  for (int64_t i = 0; i < rows; ++i) {
    float* to = out + i * out_stride;
    const float* from = sums + i * panel_cols;
    if (!add) {
      std::copy(from, from + cols, to);
    } else {
      for (int64_t j = 0; j < cols; ++j) to[j] += from[j];
    }
  }
}

int64_t padded(int64_t lines, int64_t width) { return divided_up(lines, width) * width; }

void fill_zero(int64_t rows, int64_t cols, float* out, int64_t out_stride) {
  for (int64_t i = 0; i < rows; ++i) std::fill_n(out + i * out_stride, cols, 0.0F);
}

// out (+)= the product of packed lines over one block of the depth.
void multiply_block(const float* left, int64_t rows, const float* right, int64_t cols,
                    int64_t depth, bool add, float* out, int64_t out_stride, CpuLevel level) {
  const PanelKernel multiply_panels = panel_kernel(level);
  for (int64_t col = 0; col < cols; col += panel_cols) {
    for (int64_t row = 0; row < rows; row += panel_rows) {
      float sums[panel_rows * panel_cols];
      multiply_panels(left + row * depth, right + col * depth, depth, sums);
      store_sums(sums, std::min(panel_rows, rows - row), std::min(panel_cols, cols - col), add,
                 out + row * out_stride + col, out_stride);
    }
  }
}

// Consecutive blocks of halves that are packed together.
struct HalfBlocks {
  std::array<int32_t, PartialBlocks::stretch_blocks> sizes;
  std::array<RoundingStream, PartialBlocks::stretch_blocks> streams;
  int64_t count = 0, depth = 0;

  HalfBlocks(const HalfSums& sums, int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block, ++count) {
      const int64_t size = sums.blocks.size(block);
      if (depth + size > block_depth) return;
      const auto at = static_cast<size_t>(count);
      sizes[at] = static_cast<int32_t>(size);
      if (sums.partials.by_chance) streams[at] = rounding_of_block(sums.partials, block);
      depth += size;
    }
  }
};

// The same with sums in halves, which go on with those in `out` or begin anew.
void multiply_half_block(const float* left, Range rows, const float* right, Range cols,
                         const HalfSums& sums, const HalfBlocks& blocks, bool add, float* out,
                         int64_t out_stride, CpuLevel level) {
  const HalfPanelKernel add_panels = half_panel_kernel(level);
  for (int64_t col = 0; col < cols.count(); col += panel_cols) {
    const int64_t width = std::min(panel_cols, cols.count() - col);
    for (int64_t row = 0; row < rows.count(); row += panel_rows) {
      const int64_t height = std::min(panel_rows, rows.count() - row);
      float* to = out + row * out_stride + col;
      float panel[panel_rows * panel_cols] = {};
      for (int64_t i = 0; add && i < height; ++i) {
        std::copy_n(to + i * out_stride, width, panel + i * panel_cols);
      }
      const int64_t first = sums.first + (rows.begin + row) * sums.cols + cols.begin + col;
      add_panels({.a = left + row * blocks.depth,
                  .b = right + col * blocks.depth,
                  .blocks = {blocks.sizes.data(), static_cast<size_t>(blocks.count)},
                  .streams = sums.partials.by_chance ? blocks.streams.data() : nullptr,
                  .first_sum = static_cast<uint32_t>(first),
                  .row_step = static_cast<uint32_t>(sums.cols)},
                 panel);
      store_sums(panel, height, width, false, to, out_stride);
    }
  }
}

// Integers wrap around as in PyTorch; products of unsigned values do so without undefined
// behaviour.
template <typename T>
void multiply_integers(const TensorView& a, const TensorView& b, const TensorView& out,
                       ThreadPool& pool) {
  const size_t r = a.sizes.size() - 2;
  const int64_t rows = a.sizes[r];
  const int64_t depth = a.sizes[r + 1];
  const int64_t cols = b.sizes[r + 1];
  const int64_t grain = std::max<int64_t>(1, 65536 / std::max<int64_t>(1, depth * cols));
  pool.run_ranges(out.numel() / std::max<int64_t>(1, cols), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t batch = row / rows;
      const T* left = a.as<const T>() + (r ? batch * a.strides[0] : 0) + row % rows * a.strides[r];
      const T* right = b.as<const T>() + (r ? batch * b.strides[0] : 0);
      for (int64_t j = 0; j < cols; ++j) {
        uint64_t sum = 0;
        for (int64_t k = 0; k < depth; ++k) {
          sum += static_cast<uint64_t>(left[k * a.strides[r + 1]]) *
                 static_cast<uint64_t>(right[k * b.strides[r] + j * b.strides[r + 1]]);
        }
        out.as<T>()[row * cols + j] = static_cast<T>(sum);
      }
    }
  });
}

void multiply_floats(const TensorView& a, const TensorView& b, const TensorView& out,
                     ThreadPool& pool, const Partials& partials) {
  const size_t r = a.sizes.size() - 2;
  const int64_t batches = r ? a.sizes[0] : 1;
  const int64_t rows = a.sizes[r];
  const int64_t depth = a.sizes[r + 1];
  const int64_t cols = b.sizes[r + 1];
  const ProductTiles tiles(rows, cols, batches);
  pool.run(batches * tiles.count(), [&](int64_t piece) {
    const int64_t batch = piece / tiles.count();
    const Range row_range = tiles.rows(piece % tiles.count(), rows);
    const Range col_range = tiles.cols(piece % tiles.count(), cols);
    const StridedLines left(a.as<const float>() + (r ? batch * a.strides[0] : 0), a.strides[r],
                            a.strides[r + 1]);
    const StridedLines right(b.as<const float>() + (r ? batch * b.strides[0] : 0), b.strides[r + 1],
                             b.strides[r]);
    float* to = out.as<float>() + (batch * rows + row_range.begin) * cols + col_range.begin;
    if (!partials.half) {
      multiply(left, row_range, right, col_range, {0, depth}, to, cols, pool.level());
      return;
    }
    const HalfSums sums{partials, {depth, depth}, cols, batch * rows * cols};
    multiply(left, row_range, right, col_range, sums, {0, sums.blocks.stretches()}, to, cols,
             pool.level());
  });
}

}  // namespace

void StridedLines::pack(Range lines, Range depth, int64_t width, float* to) const {
  const int64_t count = depth.count();
  for (int64_t line = lines.begin; line < lines.end; line += width, to += width * count) {
    const int64_t here = std::min(width, lines.end - line);
    const float* from = data_ + line * line_stride_ + depth.begin * depth_stride_;
    if (line_stride_ == 1) {
      for (int64_t k = 0; k < count; ++k) {
        std::copy(from + k * depth_stride_, from + k * depth_stride_ + here, to + k * width);
        std::fill(to + k * width + here, to + (k + 1) * width, 0.0F);
      }
      continue;
    }
    for (int64_t j = 0; j < width; ++j) {
      for (int64_t k = 0; k < count; ++k) {
        to[k * width + j] = j < here ? from[j * line_stride_ + k * depth_stride_] : 0.0F;
      }
    }
  }
}

ProductTiles::ProductTiles(int64_t rows, int64_t cols, int64_t copies)
    : row_step(max_tile_rows), col_step(max_tile_cols) {
  const auto count_tiles = [&] {
    row_tiles = divided_up(rows, row_step);
    col_tiles = divided_up(cols, col_step);
  };
  count_tiles();
  while (copies * count() < wanted_tiles && col_step > 4 * panel_cols) {
    col_step /= 2;
    count_tiles();
  }
}

Range ProductTiles::rows(int64_t tile, int64_t total) const {
  const int64_t begin = tile % row_tiles * row_step;
  return {begin, std::min(begin + row_step, total)};
}

Range ProductTiles::cols(int64_t tile, int64_t total) const {
  const int64_t begin = tile / row_tiles * col_step;
  return {begin, std::min(begin + col_step, total)};
}

void multiply(const Lines& left, Range rows, const Lines& right, Range cols, Range depth,
              float* out, int64_t out_stride, CpuLevel level) {
  thread_local std::vector<float> left_memory;
  thread_local std::vector<float> right_memory;
  float* packed_left = scratch(left_memory, padded(rows.count(), panel_rows) * block_depth);
  float* packed_right = scratch(right_memory, padded(cols.count(), panel_cols) * block_depth);

  if (depth.count() == 0) fill_zero(rows.count(), cols.count(), out, out_stride);
  for (int64_t k = depth.begin; k < depth.end; k += block_depth) {
    const Range block{k, std::min(k + block_depth, depth.end)};
    left.pack(rows, block, panel_rows, packed_left);
    right.pack(cols, block, panel_cols, packed_right);
    multiply_block(packed_left, rows.count(), packed_right, cols.count(), block.count(),
                   k != depth.begin, out, out_stride, level);
  }
}

void multiply(const Lines& left, Range rows, const Lines& right, Range cols, const HalfSums& sums,
              Range stretches, float* out, int64_t out_stride, CpuLevel level) {
  thread_local std::vector<float> left_memory;
  thread_local std::vector<float> right_memory;
  thread_local std::vector<float> stretch_memory;
  float* packed_left = scratch(left_memory, padded(rows.count(), panel_rows) * block_depth);
  float* packed_right = scratch(right_memory, padded(cols.count(), panel_cols) * block_depth);

  if (stretches.count() == 0) fill_zero(rows.count(), cols.count(), out, out_stride);
  for (int64_t stretch = stretches.begin; stretch < stretches.end; ++stretch) {
    const bool first = stretch == stretches.begin;
    float* to = first ? out : scratch(stretch_memory, rows.count() * cols.count());
    const int64_t to_stride = first ? out_stride : cols.count();
    const int64_t begin = stretch * PartialBlocks::stretch_blocks;
    const int64_t end = std::min(begin + PartialBlocks::stretch_blocks, sums.blocks.count());
    for (int64_t block = begin; block < end;) {
      const HalfBlocks blocks(sums, block, end);
      const int64_t k = sums.blocks.begin(block);
      left.pack(rows, {k, k + blocks.depth}, panel_rows, packed_left);
      right.pack(cols, {k, k + blocks.depth}, panel_cols, packed_right);
      multiply_half_block(packed_left, rows, packed_right, cols, sums, blocks, block != begin, to,
                          to_stride, level);
      block += blocks.count;
    }
    for (int64_t i = 0; !first && i < rows.count(); ++i) {
      for (int64_t j = 0; j < cols.count(); ++j) out[i * out_stride + j] += to[i * to_stride + j];
    }
  }
}

PackedColumns::PackedColumns(const Lines& columns, int64_t count, int64_t depth, ThreadPool& pool)
    : count_(count),
      depth_(depth),
      level_(pool.level()),
      panels_(static_cast<size_t>(padded(count, panel_cols) * depth)) {
  const int64_t grain = std::max<int64_t>(1, 32768 / (panel_cols * std::max<int64_t>(1, depth)));
  pool.run_ranges(divided_up(count, panel_cols), grain, [&](int64_t begin, int64_t end) {
    const Range cols{begin * panel_cols, std::min(end * panel_cols, count)};
    for (int64_t k = 0; k < depth; k += block_depth) {
      const Range block{k, std::min(k + block_depth, depth)};
      float* to = panels_.data() + k * padded(count, panel_cols) + cols.begin * block.count();
      columns.pack(cols, block, panel_cols, to);
    }
  });
}

void PackedColumns::multiply(const Lines& left, Range rows, float* out, int64_t out_stride) const {
  thread_local std::vector<float> left_memory;
  float* packed_left = scratch(left_memory, padded(rows.count(), panel_rows) * block_depth);
  if (depth_ == 0) fill_zero(rows.count(), count_, out, out_stride);
  for (int64_t k = 0; k < depth_; k += block_depth) {
    const Range block{k, std::min(k + block_depth, depth_)};
    left.pack(rows, block, panel_rows, packed_left);
    multiply_block(packed_left, rows.count(), panels_.data() + k * padded(count_, panel_cols),
                   count_, block.count(), k > 0, out, out_stride, level_);
  }
}

void matmul(const TensorView& a, const TensorView& b, const TensorView& out, ThreadPool& pool,
            const Partials& partials) {
  if (out.numel() == 0) return;
  switch (out.dtype) {
    case DType::f32:
      return multiply_floats(a, b, out, pool, partials);
    case DType::i32:
      return multiply_integers<int32_t>(a, b, out, pool);
    case DType::i64:
      return multiply_integers<int64_t>(a, b, out, pool);
    case DType::i16:
      return multiply_integers<int16_t>(a, b, out, pool);
    case DType::i8:
      return multiply_integers<int8_t>(a, b, out, pool);
    case DType::u8:
      return multiply_integers<uint8_t>(a, b, out, pool);
    default:
      fail(ErrorKind::type, "matmul cannot multiply matrices of type {}; use float32",
           name_of(out.dtype));
  }
}

}  // namespace tessera::kernels
