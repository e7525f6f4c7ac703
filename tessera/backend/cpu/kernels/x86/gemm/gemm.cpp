#include "tessera/backend/cpu/kernels/x86/gemm/gemm.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <set>

#include "tessera/backend/cpu/kernels/x86/gemm/pack.h"
#include "tessera/backend/cpu/kernels/x86/halves.h"
#include "tessera/base/divided_up.h"

namespace tessera::cpu {
namespace {

// A piece is about 8 us of work; above that many, threads find enough.
constexpr int64_t multiply_adds_per_piece = 375'000;
constexpr int64_t most_pieces = 32;
// Pieces that share a packed right matrix have at least so many rows, if columns can be cut.
constexpr int64_t least_rows = 48;
// What reading an element from the second-level cache costs, in multiply-adds.
constexpr int64_t multiply_adds_per_element = 5;
// A panel of the right matrix, 16 columns of that depth, takes most of the first-level cache.
constexpr int64_t most_depth = 320;
// Vectors along the depth: the rows of a tile and of its neighbours.
constexpr int64_t most_dot_depth = 1024;
constexpr int64_t dot_chunk_floats = 3072;
// A block of the left matrix stays in the second-level cache.
constexpr int64_t block_floats = 36 << 10;
// Where the depth is short, few rows at a time make the result's rows whole sooner.
constexpr int64_t short_depth = 64, rows_of_short_depth = 12;
// Below so many rows the right matrix is read where it lies: packing would not pay.
constexpr int64_t rows_to_pack_for = 33;
// Dots need no packing, but sum up lanes in the end: for few rows, or too few columns for vectors.
constexpr int64_t most_dot_rows = 48, few_columns = 16, few_sums = 64 * 128, least_dot_depth = 32;
constexpr int64_t epilogue_floats = 4096;
constexpr int64_t floats_per_packing = 64 << 10;

int64_t aligned_floats(int64_t floats) { return rounded_up(floats, 16); }

}  // namespace

bool Gemm::fits(const GemmShape& shape) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max() / 4 / 64;
  return std::max({shape.a_row, shape.a_depth, shape.b_depth, shape.b_column, shape.columns,
                   shape.rows}) < most;
}

Gemm::Gemm(const GemmShape& shape) : shape_(shape), depth_(shape.depth) {
  for (const GemmShape::Batch& one : shape_.batch) {
    batch_sizes_.push_back(one.size);
    batch_ *= one.size;
  }
  // A column is a row of the transposed product, and lies as one.
  if (shape_.columns == 1 && shape_.rows > 1 && !shape_.bias) {
    turned_ = true;
    std::swap(shape_.rows, shape_.columns);
    std::swap(shape_.a_row, shape_.b_column);
    std::swap(shape_.a_depth, shape_.b_depth);
    std::swap(shape_.a_halves, shape_.b_halves);
    for (GemmShape::Batch& one : shape_.batch) std::swap(one.a_stride, one.b_stride);
  }
  // Strides of dimensions of one element mean nothing: let them look contiguous.
  if (shape_.rows == 1) shape_.a_row = depth_;
  if (shape_.columns == 1) shape_.b_column = shape_.b_depth == 1 ? depth_ : 1;
  if (depth_ == 1) {
    shape_.a_depth = 1;
    if (shape_.b_column == 1) shape_.b_depth = shape_.columns;
  }
  choose_way();
  cut_into_pieces();
  generate();
}

void Gemm::choose_way() {
  const int64_t rows = shape_.rows, columns = shape_.columns;
  dots_ = shape_.b_depth == 1 &&
          (rows <= most_dot_rows || columns <= few_columns || rows * columns <= few_sums) &&
          depth_ >= least_dot_depth;
  if (dots_) {
    pack_a_ = shape_.a_depth != 1;
    tile_rows_ = rows < 4 ? rows : rows % 4 != 0 && rows % 3 == 0 ? 3 : 4;
    tile_columns_ = tile_accumulators / tile_rows_;
    depth_block_ = rounded_up(divided_up(depth_, divided_up(depth_, most_dot_depth)), 8);
    row_block_ = rows;
    return;
  }
  pack_b_ = shape_.b_column != 1 || rows >= rows_to_pack_for;
  pack_a_ = shape_.a_depth != 1 && depth_ > 32 && columns > 64;
  if (!pack_b_) {
    if (rows <= 4 || rows % 4 == 0) tile_rows_ = std::min<int64_t>(rows, 4);
    if (tile_rows_ <= 4) tile_columns_ = tile_accumulators / tile_rows_ * 8;
  }
  depth_block_ = rounded_up(divided_up(depth_, divided_up(depth_, most_depth)), 4);
  row_block_ = depth_ <= short_depth ? rows_of_short_depth
                                     : std::max<int64_t>(24, block_floats / depth_block_ / 6 * 6);
}

// By halves; columns first where the right matrix is not shared: each piece then has its own.
void Gemm::cut_into_pieces() {
  const int64_t rows = shape_.rows, columns = shape_.columns;
  const int64_t elements = rows * depth_ + depth_ * columns + rows * columns;
  const int64_t work =
      batch_ * std::max(rows * columns * depth_, elements * multiply_adds_per_element);
  const int64_t wanted = std::min<int64_t>(
      most_pieces,
      std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, work / multiply_adds_per_piece))));
  batch_pieces_ = std::min(batch_, wanted);
  batch_step_ = divided_up(batch_, batch_pieces_);
  batch_pieces_ = divided_up(batch_, batch_step_);
  share_a_ = pack_a_ && !dots_ && batch_ == 1;
  share_b_ = pack_b_ && batch_ == 1;
  row_step_ = rows;
  column_step_ = columns;
  while (pieces() < wanted) {
    const int64_t half_columns = rounded_up(divided_up(column_step_, 2), tile_columns_);
    const int64_t half_rows = rounded_up(divided_up(row_step_, 2), tile_rows_);
    const bool can_columns = half_columns < column_step_ && column_step_ >= 32;
    const bool can_rows = half_rows < row_step_ && row_step_ >= 2 * tile_rows_;
    if (!can_columns && !can_rows) break;
    // What is packed of the left matrix, and read of a shared right one, serves all columns.
    const bool rows_first = share_b_ && half_rows >= least_rows;
    const bool cut_columns = can_columns && !(can_rows && rows_first);
    (cut_columns ? column_step_ : row_step_) = cut_columns ? half_columns : half_rows;
    row_pieces_ = divided_up(rows, row_step_);
    column_pieces_ = divided_up(columns, column_step_);
  }
  // Blocks of equal size, as large as is good.
  row_block_ = rounded_up(divided_up(row_step_, divided_up(row_step_, row_block_)), tile_rows_);

  shared_b_floats_ = share_b_ ? aligned_floats(packed_b_floats()) : 0;
  shared_floats_ = shared_b_floats_ + (share_a_ ? aligned_floats(rows * depth_) : 0);
  room_b_floats_ = pack_b_ && !share_b_ ? aligned_floats(packed_b_floats()) : 0;
  const int64_t a_floats = dots_ ? row_step_ * rounded_up(depth_, 8) : row_block_ * depth_block_;
  room_floats_ = room_b_floats_ + (pack_a_ && !share_a_ ? aligned_floats(a_floats) : 0);
  floats_ = shared_floats_ + pieces() * room_floats_;

  int64_t a_reach = (rows - 1) * shape_.a_row + (depth_ - 1) * shape_.a_depth + 1;
  int64_t b_reach = (depth_ - 1) * shape_.b_depth + (columns - 1) * shape_.b_column + 1;
  for (const GemmShape::Batch& one : shape_.batch) {
    a_reach += (one.size - 1) * one.a_stride;
    b_reach += (one.size - 1) * one.b_stride;
  }
  if (shape_.a_halves && !pack_a_) wide_a_floats_ = a_reach;
  if (shape_.b_halves && !pack_b_) wide_b_floats_ = b_reach;
  floats_ = aligned_floats(floats_) + aligned_floats(wide_a_floats_) + wide_b_floats_;
}

int64_t Gemm::packed_b_floats() const {
  return depth_ * rounded_up(share_b_ ? shape_.columns : column_step_, tile_columns_);
}

Gemm::Heights Gemm::heights(int64_t rows) const {
  const int64_t tiles = divided_up(rows, tile_rows_);
  const int64_t low = rows / tiles, extra = rows % tiles;
  if (extra == 0) return {low, tiles, 0};
  return {low + 1, extra, tiles - extra};
}

Gemm::Span Gemm::depth_range(int64_t block) const {
  return {block * depth_block_, std::min(depth_, (block + 1) * depth_block_)};
}

Gemm::DepthKind Gemm::depth_kind(int64_t block) const {
  const bool is_first = block == 0, is_last = block == depth_blocks() - 1;
  if (is_first) return is_last ? only : first;
  return is_last ? last : middle;
}

// ---- Code

void Gemm::generate() {
  std::set<int64_t> all_heights;
  const auto add_blocks_of = [&](int64_t rows) {
    for (int64_t begin = 0; begin < rows; begin += row_block_) {
      const Heights some = heights(std::min(row_block_, rows - begin));
      all_heights.insert(some.tall);
      if (some.low_count > 0) all_heights.insert(some.tall - 1);
    }
  };
  add_blocks_of(row_step_);
  add_blocks_of(shape_.rows - (row_pieces_ - 1) * row_step_);
  std::map<DepthKind, int64_t> depths;
  for (int64_t block = 0; block < depth_blocks(); ++block)
    depths[depth_kind(block)] = depth_range(block).count();

  constexpr size_t bytes_per_function = 6 << 10;
  code_ =
      std::make_shared<GemmCode>((all_heights.size() * depths.size() * 2 + 1) * bytes_per_function);
  struct Made {
    TileFunction* where;
    size_t begin;
  };
  std::vector<Made> made;
  for (const int64_t height : all_heights) {
    for (const auto& [kind, depth] : depths) {
      const bool ends = kind == only || kind == last;
      const TileEnds tile_ends{.accumulate = kind == middle || kind == last,
                               .bias = ends && shape_.bias,
                               .relu = ends && shape_.relu};
      for (const int64_t columns :
           {std::min(tile_columns_, shape_.columns), shape_.columns % tile_columns_}) {
        if (columns == 0) continue;
        const size_t is_rest = columns < tile_columns_ ? 1 : 0;
        TileFunction* where = &functions_[static_cast<size_t>(height)][is_rest][kind];
        if (dots_) {
          made.push_back(
              {where, code_->dot({.rows = height,
                                  .columns = columns,
                                  .depth = depth,
                                  .a_row = pack_a_ ? rounded_up(depth_, 8) : shape_.a_row,
                                  .b_column = shape_.b_column,
                                  .out_row = shape_.columns,
                                  .ends = tile_ends})});
          continue;
        }
        PanelTile tile{.rows = height,
                       .columns = columns,
                       .depth = depth,
                       .a_row = shape_.a_row,
                       .a_depth = shape_.a_depth,
                       .b_depth = pack_b_ ? tile_columns_ : shape_.b_depth,
                       .b_padded = pack_b_,
                       .next_a = height * shape_.a_row,
                       .out_row = shape_.columns,
                       .ends = tile_ends};
        if (pack_a_) {
          tile.a_row = 1;
          tile.a_depth = height;
          tile.next_a = height * depth;
        }
        made.push_back({where, code_->panel(tile)});
      }
    }
  }
  code_->seal();
  for (const Made& one : made) *one.where = code_->function(one.begin);
}

// ---- Running

void Gemm::run(const void* a, const void* b, const float* bias, float* out, ThreadPool& pool,
               std::span<std::byte> workspace, const Epilogue& epilogue) const {
  if (turned_) std::swap(a, b);
  auto* floats = reinterpret_cast<float*>(workspace.data());
  Memory memory{{a, shape_.a_halves}, {b, shape_.b_halves}, bias, out, floats, epilogue};
  float* wide_b = floats + floats_ - wide_b_floats_;
  float* wide_a = wide_b - aligned_floats(wide_a_floats_);
  if (wide_a_floats_ > 0) memory.a = widened(memory.a, wide_a_floats_, wide_a, pool);
  if (wide_b_floats_ > 0) memory.b = widened(memory.b, wide_b_floats_, wide_b, pool);
  if (share_a_ || share_b_) pack_shared(memory, pool);
  if (pieces() == 1) return run_piece(memory, 0);
  pool.run(pieces(), [&](int64_t piece) { run_piece(memory, piece); });
}

Gemm::Elements Gemm::widened(const Elements& elements, int64_t count, float* to,
                             ThreadPool& pool) const {
  const auto* from = static_cast<const Half*>(elements.data);
  pool.run_ranges(count, floats_per_packing, [&](int64_t begin, int64_t end) {
    widen_halves(from + begin, to + begin, end - begin);
  });
  return {to, false};
}

void Gemm::pack_shared(const Memory& memory, ThreadPool& pool) const {
  const int64_t columns = shape_.columns;
  const int64_t step =
      std::max(tile_columns_, floats_per_packing / depth_ / tile_columns_ * tile_columns_);
  const int64_t of_b = share_b_ ? divided_up(columns, step) : 0;
  const int64_t blocks = divided_up(row_step_, row_block_);
  const int64_t of_a = share_a_ ? row_pieces_ * blocks : 0;
  const auto pack = [&](int64_t piece) {
    if (piece < of_b) {
      const Span some{piece * step, std::min(columns, (piece + 1) * step)};
      return pack_b(memory.b, some, memory.workspace, rounded_up(columns, tile_columns_));
    }
    const int64_t row_piece = (piece - of_b) / blocks * row_step_;
    const int64_t begin = row_piece + (piece - of_b) % blocks * row_block_;
    const Span rows{begin, std::min({begin + row_block_, row_piece + row_step_, shape_.rows})};
    if (rows.count() <= 0) return;
    for (int64_t block = 0; block < depth_blocks(); ++block)
      pack_a(memory.a, rows, depth_range(block), shared_a(memory.workspace, rows, block));
  };
  if (depth_ * ((share_b_ ? columns : 0) + (share_a_ ? shape_.rows : 0)) > floats_per_packing)
    return pool.run(of_a + of_b, pack);
  for (int64_t piece = 0; piece < of_a + of_b; ++piece) pack(piece);
}

void Gemm::pack_a(const Elements& a, Span rows, Span depth, float* to) const {
  const Heights tiles = heights(rows.count());
  a.visit([&](const auto* elements) {
    pack_rows(elements + rows.begin * shape_.a_row + depth.begin * shape_.a_depth, shape_.a_row,
              shape_.a_depth, tiles.tall, tiles.tall_count, tiles.low_count, depth.count(), to);
  });
}

float* Gemm::shared_a(float* workspace, Span rows, int64_t block) const {
  return workspace + shared_b_floats_ + rows.begin * depth_ +
         rows.count() * depth_range(block).begin;
}

// Block after block of the depth; in each, panel after panel. Whole rows are read a few at a time.
void Gemm::pack_b(const Elements& b, Span columns, float* to, int64_t all_columns) const {
  for (int64_t block = 0; block < depth_blocks(); ++block) {
    const Span depth = depth_range(block);
    const int64_t step = shape_.b_depth == 1 ? depth.count() : 8;
    for (int64_t k = depth.begin; k < depth.end; k += step) {
      for (int64_t j = columns.begin; j < columns.end; j += tile_columns_) {
        b.visit([&](const auto* elements) {
          pack_columns(elements + k * shape_.b_depth + j * shape_.b_column, shape_.b_depth,
                       shape_.b_column, std::min(step, depth.end - k),
                       std::min(tile_columns_, columns.end - j), tile_columns_,
                       to + depth.begin * all_columns + j * depth.count() +
                           (k - depth.begin) * tile_columns_);
        });
      }
    }
  }
}

void Gemm::run_piece(const Memory& memory, int64_t piece) const {
  const int64_t column = piece % column_pieces_ * column_step_;
  const int64_t row = piece / column_pieces_ % row_pieces_ * row_step_;
  const int64_t batch_begin = piece / (column_pieces_ * row_pieces_) * batch_step_;
  const int64_t batch_end = std::min(batch_, batch_begin + batch_step_);
  Part part;
  part.bias = memory.bias;
  part.shared = memory.workspace;
  part.room = memory.workspace + shared_floats_ + piece * room_floats_;
  part.rows = {row, std::min(shape_.rows, row + row_step_)};
  part.columns = {column, std::min(shape_.columns, column + column_step_)};
  for (part.batch = batch_begin; part.batch < batch_end; ++part.batch) {
    part.a = memory.a;
    part.b = memory.b;
    part.out = memory.out + part.batch * shape_.rows * shape_.columns;
    int64_t rest = part.batch;
    for (size_t i = shape_.batch.size(); i-- > 0;) {
      const GemmShape::Batch& one = shape_.batch[i];
      part.a = part.a.from(rest % one.size * one.a_stride);
      part.b = part.b.from(rest % one.size * one.b_stride);
      rest /= one.size;
    }
    if (dots_) {
      run_dots(part, memory.epilogue);
      continue;
    }
    if (share_b_) {
      part.b = {memory.workspace, false};
    } else if (pack_b_) {
      pack_b(part.b.from(column * shape_.b_column), {0, part.columns.count()}, part.room,
             rounded_up(column_step_, tile_columns_));
      part.b = {part.room, false};
    }
    run_panels(part, memory.epilogue);
  }
}

int64_t Gemm::epilogue_columns(int64_t rows) const {
  return std::max(tile_columns_, epilogue_floats / rows / tile_columns_ * tile_columns_);
}

void Gemm::run_panels(const Part& part, const Epilogue& epilogue) const {
  const int64_t packed_columns =
      rounded_up(share_b_ ? shape_.columns : column_step_, tile_columns_);
  const int64_t packed_begin = share_b_ ? 0 : part.columns.begin;
  float* packed_a = part.room + room_b_floats_;
  for (int64_t row = part.rows.begin; row < part.rows.end; row += row_block_) {
    const Span rows{row, std::min(part.rows.end, row + row_block_)};
    const Heights tiles = heights(rows.count());
    const int64_t low_row = tiles.tall * tiles.tall_count;
    const int64_t group = epilogue ? epilogue_columns(rows.count()) : part.columns.count();
    for (int64_t block = 0; block < depth_blocks(); ++block) {
      const Span depth = depth_range(block);
      const DepthKind kind = depth_kind(block);
      const float* a =
          part.a.from(rows.begin * shape_.a_row + depth.begin * shape_.a_depth).floats();
      int64_t low_a = low_row * shape_.a_row;
      if (pack_a_) {
        if (!share_a_) pack_a(part.a, rows, depth, packed_a);
        a = share_a_ ? shared_a(part.shared, rows, block) : packed_a;
        low_a = low_row * depth.count();
      }
      for (int64_t begin = part.columns.begin; begin < part.columns.end; begin += group) {
        const int64_t end = std::min(part.columns.end, begin + group);
        for (int64_t j = begin; j < end; j += tile_columns_) {
          const size_t is_rest = part.columns.end - j < tile_columns_ ? 1 : 0;
          const float* b = part.b.floats() + (pack_b_ ? depth.begin * packed_columns +
                                                            (j - packed_begin) * depth.count()
                                                      : depth.begin * shape_.b_depth + j);
          float* out = part.out + rows.begin * shape_.columns + j;
          const auto height = static_cast<size_t>(tiles.tall);
          functions_[height][is_rest][kind](a, b, out, part.bias + j, tiles.tall_count);
          if (tiles.low_count == 0) continue;
          functions_[height - 1][is_rest][kind](a + low_a, b, out + low_row * shape_.columns,
                                                part.bias + j, tiles.low_count);
        }
        if (epilogue && (kind == last || kind == only))
          call_epilogue(epilogue, part.batch, rows, {begin, end});
      }
    }
  }
}

// A few columns of the right matrix at a time serve all rows while they lie in the cache.
void Gemm::run_dots(const Part& part, const Epilogue& epilogue) const {
  const Elements a_rows = part.a.from(part.rows.begin * shape_.a_row);
  const float* a_begin = a_rows.floats();
  int64_t a_row = shape_.a_row;
  if (pack_a_) {
    a_row = rounded_up(depth_, 8);
    float* packed = part.room + room_b_floats_;
    a_rows.visit([&](const auto* elements) {
      if (shape_.a_row == 1) {
        transpose_block(elements, shape_.a_depth, depth_, part.rows.count(), packed, a_row);
        return;
      }
      for (int64_t i = 0; i < part.rows.count(); ++i)
        for (int64_t k = 0; k < depth_; ++k)
          packed[i * a_row + k] = as_float(elements[i * shape_.a_row + k * shape_.a_depth]);
    });
    a_begin = packed;
  }
  const Heights tiles = heights(part.rows.count());
  const int64_t tile_count = tiles.tall_count + tiles.low_count;
  const int64_t chunk = std::max<int64_t>(
      1, tile_count == 1 ? part.columns.count() : dot_chunk_floats / depth_block_ / tile_columns_);
  for (int64_t block = 0; block < depth_blocks(); ++block) {
    const Span depth = depth_range(block);
    const DepthKind kind = depth_kind(block);
    for (int64_t j = part.columns.begin; j < part.columns.end; j += chunk * tile_columns_) {
      const int64_t columns = std::min(chunk * tile_columns_, part.columns.end - j);
      const int64_t whole = columns / tile_columns_, rest = columns % tile_columns_;
      const float* b = part.b.floats() + depth.begin + j * shape_.b_column;
      int64_t i = 0;
      for (int64_t tile = 0; tile < tile_count; ++tile) {
        const int64_t height = tile < tiles.tall_count ? tiles.tall : tiles.tall - 1;
        const auto& functions = functions_[static_cast<size_t>(height)];
        const float* a = a_begin + i * a_row + depth.begin;
        float* out = part.out + (part.rows.begin + i) * shape_.columns + j;
        if (whole > 0) functions[0][kind](a, b, out, part.bias + j, whole);
        if (rest > 0) {
          const int64_t done = whole * tile_columns_;
          functions[1][kind](a, b + done * shape_.b_column, out + done, part.bias + j + done, 1);
        }
        i += height;
      }
    }
  }
  if (!epilogue) return;
  const int64_t group = epilogue_columns(part.rows.count());
  for (int64_t j = part.columns.begin; j < part.columns.end; j += group)
    call_epilogue(epilogue, part.batch, part.rows, {j, std::min(part.columns.end, j + group)});
}

void Gemm::call_epilogue(const Epilogue& epilogue, int64_t batch, Span rows, Span columns) const {
  Box box;
  const size_t rank = batch_sizes_.size();
  for (size_t i = rank; i-- > 0;) {
    box.begin[i] = batch % batch_sizes_[i];
    box.end[i] = box.begin[i] + 1;
    batch /= batch_sizes_[i];
  }
  if (turned_) std::swap(rows, columns);
  box.begin[rank] = rows.begin;
  box.end[rank] = rows.end;
  box.begin[rank + 1] = columns.begin;
  box.end[rank + 1] = columns.end;
  epilogue(box);
}

}  // namespace tessera::cpu
