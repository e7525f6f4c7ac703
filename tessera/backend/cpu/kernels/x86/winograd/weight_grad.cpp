#include "tessera/backend/cpu/kernels/x86/winograd/weight_grad.h"

#include <algorithm>

#include "tessera/backend/cpu/kernels/x86/avx2.h"
#include "tessera/base/divided_up.h"

namespace tessera::cpu {
namespace {

using avx2::lanes;
constexpr int64_t float_bytes = sizeof(float);
constexpr int64_t block_columns = 16;
// Pieces have sums of their own: few, and a bound on their memory.
constexpr int64_t most_pieces = 16;
constexpr int64_t most_sum_bytes = int64_t{20} << 20;
constexpr int64_t most_chunk_bytes = int64_t{16} << 20;

int64_t all_sums_bytes(const WinogradShape& shape, int tile) {
  return (tile + 2) * (tile + 2) * shape.in * shape.out * float_bytes;
}

// Rows are input channels, k are tiles: V is [tile][in].
GemmRows channel_rows(int64_t in) {
  return {.row_stride = 1,
          .k_stride = in,
          .group = 4,
          .group_stride = 4 * in,
          .panel_stride_per_row = 1};
}

TESSERA_AVX2 void add_to(float* sum, const float* more, int64_t count) {
  for (int64_t i = 0; i < count; i += lanes) {
    _mm256_storeu_ps(sum + i, _mm256_add_ps(_mm256_loadu_ps(sum + i), _mm256_loadu_ps(more + i)));
  }
}

}  // namespace

struct WinogradWeightGrad::Operands {
  const std::byte *grad, *images;  // of floats or halves
  float* result;
  ThreadPool& pool;
};

WinogradWeightGrad::Cut WinogradWeightGrad::cut_of(const WinogradShape& shape, int tile) {
  return all_sums_bytes(shape, tile) > (int64_t{2} << 20) ? Cut::weights : Cut::tiles;
}

// Large enough that adding a block's products to the sums does not matter, small enough that they
// lie in the cache.
int64_t WinogradWeightGrad::block_tiles(const WinogradShape& shape, int tile) {
  if (cut_of(shape, tile) == Cut::weights) return 48;
  const int64_t side = tile + 2;
  const int64_t fitting =
      (int64_t{512} << 10) / (side * side * (shape.in + shape.out) * float_bytes);
  return std::clamp<int64_t>(fitting, 24, 64);
}

WinogradWeightGrad::WinogradWeightGrad(const WinogradShape& shape, int tile, Halves halves)
    : shape_(shape),
      transform_(winograd_transform(tile)),
      halves_(halves),
      cut_(cut_of(shape, tile)),
      blocks_(shape, tile, block_tiles(shape, tile)),
      column_blocks_(divided_up(shape.out, block_columns)),
      in_cuts_(cut_ == Cut::tiles ? 1 : divided_up(shape.in, 128)),
      in_per_cut_(divided_up(shape.in / lanes, in_cuts_) * lanes),
      pieces_(std::clamp<int64_t>(most_sum_bytes / all_sums_bytes(shape, tile), 1,
                                  std::min(most_pieces, blocks_.count()))),
      v_stride_(element_stride(blocks_.most_tiles() * shape.in)),
      y_stride_(element_stride(blocks_.most_tiles() * shape.out)),
      sum_stride_(element_stride(in_per_cut_ * block_columns)),
      gemm_(channel_rows(shape.in)) {}

int64_t WinogradWeightGrad::columns(int64_t column_block) const {
  return std::min(block_columns, shape_.out - column_block * block_columns);
}

int64_t WinogradWeightGrad::chunk() const {
  return std::clamp<int64_t>(most_chunk_bytes / (block_floats() * float_bytes), 1, blocks_.count());
}

int64_t WinogradWeightGrad::rooms() const {
  return std::min(Rooms::most, cut_ == Cut::tiles ? pieces_ : column_blocks_ * in_cuts_);
}

int64_t WinogradWeightGrad::workspace_bytes() const {
  const int64_t floats = cut_ == Cut::tiles
                             ? pieces_ * column_blocks_ * sum_floats() + rooms() * block_floats()
                             : chunk() * block_floats() + rooms() * sum_floats();
  return floats * float_bytes;
}

void WinogradWeightGrad::transform_input(const Operands& o, const TileBlock& block, int64_t begin,
                                         int64_t end, float* v) const {
  if (halves_.images) {
    transform_input_of(reinterpret_cast<const Half*>(o.images), block, begin, end, v);
  } else {
    transform_input_of(reinterpret_cast<const float*>(o.images), block, begin, end, v);
  }
}

void WinogradWeightGrad::transform_grad(const Operands& o, const TileBlock& block, int64_t begin,
                                        int64_t end, float* y) const {
  if (halves_.grad) {
    transform_grad_of(reinterpret_cast<const Half*>(o.grad), block, begin, end, y);
  } else {
    transform_grad_of(reinterpret_cast<const float*>(o.grad), block, begin, end, y);
  }
}

// V: [element][tile][in].
template <typename Element>
void WinogradWeightGrad::transform_input_of(const Element* images, const TileBlock& block,
                                            int64_t begin, int64_t end, float* v) const {
  const auto input = input_from(transform_, images);
  const int64_t tile = transform_.tile, plane = shape_.height * shape_.width * lanes;
  for (int64_t group = begin; group < end; ++group) {
    block.each([&](int64_t index, int64_t n, int64_t y, int64_t x) {
      const TileOf<const Element> from{images + (n * (shape_.in / lanes) + group) * plane,
                                       shape_.height, shape_.width, y * tile - shape_.pad_height,
                                       x * tile - shape_.pad_width};
      input(from, v + index * shape_.in + group * lanes, v_stride_);
    });
  }
}

// Y: [element][block of columns][tile][columns].
template <typename Element>
void WinogradWeightGrad::transform_grad_of(const Element* grad, const TileBlock& block,
                                           int64_t begin, int64_t end, float* y) const {
  const auto output_grad = output_grad_from(transform_, grad);
  constexpr int64_t vectors = block_columns / lanes;
  const int64_t tile = transform_.tile, tiles = block.tiles();
  const int64_t height = shape_.out_height(), width = shape_.out_width();
  for (int64_t group = begin; group < end; ++group) {
    const int64_t column_block = group / vectors, across = columns(column_block);
    float* to = y + column_block * block_columns * tiles + group % vectors * lanes;
    block.each([&](int64_t index, int64_t n, int64_t row, int64_t column) {
      const TileOf<const Element> from{
          grad + (n * (shape_.out / lanes) + group) * height * width * lanes, height, width,
          row * tile, column * tile};
      output_grad(from, to + index * across, y_stride_);
    });
  }
}

// sum: [element][in][columns] for the inputs from begin to end.
void WinogradWeightGrad::add_block(const float* v, const float* y, int64_t tiles,
                                   int64_t column_block, int64_t begin, int64_t end, float* sum,
                                   bool add) const {
  const int64_t vectors = columns(column_block) / lanes;
  for (int64_t e = 0; e < transform_.elements; ++e) {
    gemm_.run(v + e * v_stride_ + begin, y + e * y_stride_ + column_block * block_columns * tiles,
              sum + e * sum_stride_, end - begin, vectors, tiles, add);
  }
}

void WinogradWeightGrad::write_weights(const Operands& o, const float* sum, int64_t column_block,
                                       int64_t begin, int64_t end, bool add) const {
  constexpr int64_t tap = lanes * lanes, vectors = block_columns / lanes;
  const int64_t across = columns(column_block);
  for (int64_t vector = 0; vector < across / lanes; ++vector) {
    float* weights = o.result + (column_block * vectors + vector) * (shape_.in / lanes) * 9 * tap;
    for (int64_t i = begin; i < end; ++i) {
      transform_.weight_grad(sum + (i - begin) * across + vector * lanes, sum_stride_,
                             weights + i / lanes * 9 * tap + i % lanes * lanes, tap, add);
    }
  }
}

void WinogradWeightGrad::run_cutting_tiles(const Operands& o, float* workspace) const {
  const int64_t piece_floats = column_blocks_ * sum_floats();
  Rooms rooms(workspace + pieces_ * piece_floats, block_floats(), this->rooms());
  o.pool.run(pieces_, [&](int64_t piece) {
    const Rooms::Room room(rooms);
    float *v = room.data(), *y = v + v_floats(), *sums = workspace + piece * piece_floats;
    const int64_t first = blocks_.count() * piece / pieces_,
                  last = blocks_.count() * (piece + 1) / pieces_;
    for (int64_t i = first; i < last; ++i) {
      const TileBlock block = blocks_.block(i);
      transform_input(o, block, 0, shape_.in / lanes, v);
      transform_grad(o, block, 0, shape_.out / lanes, y);
      for (int64_t column_block = 0; column_block < column_blocks_; ++column_block) {
        add_block(v, y, block.tiles(), column_block, 0, shape_.in,
                  sums + column_block * sum_floats(), i > first);
      }
    }
  });
  o.pool.run(column_blocks_, [&](int64_t column_block) {
    float* sums = workspace + column_block * sum_floats();
    for (int64_t step = 1; step < pieces_; step *= 2) {
      for (int64_t piece = 0; piece + step < pieces_; piece += 2 * step) {
        add_to(sums + piece * piece_floats, sums + (piece + step) * piece_floats, sum_floats());
      }
    }
    write_weights(o, sums, column_block, 0, shape_.in, false);
  });
}

void WinogradWeightGrad::run_cutting_weights(const Operands& o, float* workspace) const {
  constexpr int64_t grain = 8;
  const int64_t in_groups = shape_.in / lanes, out_groups = shape_.out / lanes;
  const int64_t in_grains = divided_up(in_groups, grain),
                grains = in_grains + divided_up(out_groups, grain);
  Rooms rooms(workspace + chunk() * block_floats(), sum_floats(), this->rooms());
  for (int64_t first = 0; first < blocks_.count(); first += chunk()) {
    const int64_t count = std::min(chunk(), blocks_.count() - first);
    o.pool.run(count * grains, [&](int64_t piece) {
      const int64_t at = piece / grains, part = piece % grains;
      const TileBlock block = blocks_.block(first + at);
      float* v = workspace + at * block_floats();
      if (part < in_grains) {
        transform_input(o, block, part * grain, std::min(in_groups, (part + 1) * grain), v);
      } else {
        const int64_t begin = (part - in_grains) * grain;
        transform_grad(o, block, begin, std::min(out_groups, begin + grain), v + v_floats());
      }
    });
    o.pool.run(column_blocks_ * in_cuts_, [&](int64_t piece) {
      const Rooms::Room room(rooms);
      const int64_t column_block = piece / in_cuts_, begin = piece % in_cuts_ * in_per_cut_,
                    end = std::min(shape_.in, begin + in_per_cut_);
      if (begin >= end) return;
      for (int64_t at = 0; at < count; ++at) {
        const float* v = workspace + at * block_floats();
        add_block(v, v + v_floats(), blocks_.block(first + at).tiles(), column_block, begin, end,
                  room.data(), at > 0);
      }
      write_weights(o, room.data(), column_block, begin, end, first > 0);
    });
  }
}

void WinogradWeightGrad::run(const KernelCall& call, std::span<std::byte> workspace) const {
  const Operands operands{call.inputs[0].data, call.inputs[1].data, call.outputs[0].as<float>(),
                          call.pool};
  auto* memory = reinterpret_cast<float*>(workspace.data());
  if (cut_ == Cut::tiles) {
    run_cutting_tiles(operands, memory);
  } else {
    run_cutting_weights(operands, memory);
  }
}

}  // namespace tessera::cpu
