#include "tessera/backend/cpu/kernels/x86/winograd/images.h"

#include <algorithm>

#include "tessera/backend/cpu/kernels/x86/avx2.h"
#include "tessera/backend/cpu/kernels/x86/halves.h"
#include "tessera/base/divided_up.h"

namespace tessera::cpu {
namespace {

using avx2::lanes;
constexpr int64_t float_bytes = sizeof(float);
// Output channels that are done together: two vectors.
constexpr int64_t block_columns = 16;

// A panel of V is [in/8][rows][8].
GemmRows panel_rows(int64_t in) {
  return {.row_stride = lanes,
          .k_stride = 1,
          .group = lanes,
          .group_stride = lanes,
          .panel_stride_per_row = in,
          .group_stride_is_per_row = true};
}

}  // namespace

struct WinogradImages::Operands {
  const std::byte *images, *weights;  // of floats or halves
  const float* bias;
  float* result;
  ThreadPool& pool;
};

WinogradImages::Sharing WinogradImages::sharing_of(const WinogradShape& shape, int tile) {
  const int64_t side = tile + 2;
  const int64_t u_bytes = side * side * shape.in * shape.out * float_bytes;
  return u_bytes > (int64_t{4} << 20) ? Sharing::images : Sharing::weights;
}

// As many as leave V in the second-level cache beside what else is used there.
int64_t WinogradImages::block_tiles(const WinogradShape& shape, int tile) {
  if (sharing_of(shape, tile) == Sharing::images) return 48;
  const int64_t side = tile + 2;
  const int64_t fitting = (int64_t{224} << 10) / (side * side * shape.in * float_bytes);
  return std::clamp<int64_t>(fitting, 12, 96);
}

WinogradImages::WinogradImages(const WinogradShape& shape, int tile, Direction direction,
                               Halves halves)
    : shape_(shape),
      transform_(winograd_transform(tile)),
      direction_(direction),
      halves_(halves),
      sharing_(sharing_of(shape, tile)),
      blocks_(shape, tile, block_tiles(shape, tile)),
      column_blocks_(divided_up(shape.out, block_columns)),
      v_stride_(element_stride(blocks_.most_tiles() * shape.in)),
      u_stride_(element_stride(shape.in * block_columns)),
      m_stride_(element_stride(blocks_.most_tiles() * block_columns)),
      gemm_(panel_rows(shape.in)) {}

int64_t WinogradImages::columns(int64_t column_block) const {
  return std::min(block_columns, shape_.out - column_block * block_columns);
}

int64_t WinogradImages::images_chunk() const {
  constexpr int64_t most_bytes = int64_t{12} << 20;
  return std::clamp<int64_t>(most_bytes / (v_floats() * float_bytes), 1, blocks_.count());
}

int64_t WinogradImages::shared_floats() const {
  return sharing_ == Sharing::weights ? column_blocks_ * u_floats() : images_chunk() * v_floats();
}

int64_t WinogradImages::box_floats() const {
  const int64_t places = transform_.tile * transform_.tile;
  return halves_.result ? blocks_.most_tiles() * places * block_columns : 0;
}

int64_t WinogradImages::room_floats() const {
  return m_floats() + box_floats() + (sharing_ == Sharing::weights ? v_floats() : u_floats());
}

int64_t WinogradImages::rooms() const {
  return std::min(Rooms::most, sharing_ == Sharing::weights ? blocks_.count() : column_blocks_);
}

int64_t WinogradImages::bias_floats() const { return halves_.bias ? shape_.out : 0; }

int64_t WinogradImages::workspace_bytes() const {
  return (shared_floats() + rooms() * room_floats() + bias_floats()) * float_bytes;
}

// U of one block of output channels: [element][in][columns], for the groups of eight inputs from
// begin to end.
void WinogradImages::transform_weights(const Operands& o, int64_t column_block, int64_t begin,
                                       int64_t end, float* u) const {
  constexpr int64_t tap = lanes * lanes, taps = 9 * tap, most_vectors = block_columns / lanes;
  const int64_t width = columns(column_block), vectors = width / lanes;
  alignas(64) float wide[most_vectors][taps], turned[most_vectors][taps];
  const auto floats_at = [&](int64_t place, float* room) {
    if (!halves_.weights) return reinterpret_cast<const float*>(o.weights) + place;
    widen_halves(reinterpret_cast<const Half*>(o.weights) + place, room, taps);
    return static_cast<const float*>(room);
  };
  for (int64_t from = begin; from < end; ++from) {
    const float* weights[most_vectors] = {};
    for (int64_t vector = 0; vector < vectors; ++vector) {
      const int64_t to = column_block * most_vectors + vector;
      if (direction_ == Direction::forward) {
        weights[vector] = floats_at((to * (shape_.in / lanes) + from) * taps, wide[vector]);
        continue;
      }
      const float* given = floats_at((from * (shape_.out / lanes) + to) * taps, wide[vector]);
      for (int64_t i = 0; i < 9; ++i) {
        transpose_8x8(given + (8 - i) * tap, turned[vector] + i * tap);
      }
      weights[vector] = turned[vector];
    }
    // Whole cache lines of U are written one after the other.
    for (int64_t i = 0; i < lanes; ++i) {
      for (int64_t vector = 0; vector < vectors; ++vector) {
        transform_.weight(weights[vector] + i * lanes, tap,
                          u + (from * lanes + i) * width + vector * lanes, u_stride_);
      }
    }
  }
}

void WinogradImages::transform_images(const Operands& o, const TileBlock& block, int64_t begin,
                                      int64_t end, float* v) const {
  if (halves_.images) {
    transform_images_of(reinterpret_cast<const Half*>(o.images), block, begin, end, v);
  } else {
    transform_images_of(reinterpret_cast<const float*>(o.images), block, begin, end, v);
  }
}

// V of a block: for every element, panels as the product wants them.
template <typename Element>
void WinogradImages::transform_images_of(const Element* images, const TileBlock& block,
                                         int64_t begin, int64_t end, float* v) const {
  const auto input = input_from(transform_, images);
  const Panels panels(block.tiles());
  const int64_t larger_tiles = panels.larger * (panels.rows + 1);
  const int64_t tile = transform_.tile;
  const int64_t plane = shape_.height * shape_.width * lanes;
  for (int64_t group = begin; group < end; ++group) {
    int64_t row = 0, rows = panels.larger > 0 ? panels.rows + 1 : panels.rows;
    float* panel = v + group * rows * lanes;
    block.each([&](int64_t index, int64_t n, int64_t y, int64_t x) {
      const TileOf<const Element> from{images + (n * (shape_.in / lanes) + group) * plane,
                                       shape_.height, shape_.width, y * tile - shape_.pad_height,
                                       x * tile - shape_.pad_width};
      input(from, panel + row * lanes, v_stride_);
      if (++row < rows) return;
      row = 0;
      const int64_t next = index + 1;
      rows = next < larger_tiles ? panels.rows + 1 : panels.rows;
      panel = v + next * shape_.in + group * rows * lanes;
    });
  }
}

void WinogradImages::multiply(const Operands& o, const TileBlock& block, int64_t column_block,
                              const float* v, const float* u, float* m,
                              const Epilogue& epilogue) const {
  const int64_t tiles = block.tiles(), width = columns(column_block), vectors = width / lanes;
  for (int64_t e = 0; e < transform_.elements; ++e) {
    gemm_.run(v + e * v_stride_, u + e * u_stride_, m + e * m_stride_, tiles, vectors, shape_.in,
              false);
  }
  const int64_t tile = transform_.tile;
  const int64_t first = column_block * (block_columns / lanes);
  Box box;
  box.begin = {block.image, first, block.row * tile, block.column * tile, 0};
  box.end = {block.image + block.images, first + vectors,
             std::min(shape_.out_height(), (block.row + block.rows) * tile),
             std::min(shape_.out_width(), (block.column + block.columns) * tile), lanes};
  // The image that tiles are written to: a part of the result, or the box.
  float* result = o.result;
  int64_t height = shape_.out_height(), across = shape_.out_width();
  int64_t groups = shape_.out / lanes, image = 0, group = first, top = 0, left = 0;
  if (halves_.result) {
    result = m + m_floats();
    box.room = result;
    height = box.end[2] - box.begin[2];
    across = box.end[3] - box.begin[3];
    groups = vectors;
    image = block.image;
    group = 0;
    top = block.row;
    left = block.column;
  }
  for (int64_t vector = 0; vector < vectors; ++vector) {
    const float* bias = o.bias ? o.bias + (first + vector) * lanes : nullptr;
    block.each([&](int64_t index, int64_t n, int64_t y, int64_t x) {
      const ImageTile to{result + ((n - image) * groups + group + vector) * height * across * lanes,
                         height, across, (y - top) * tile, (x - left) * tile};
      transform_.output(m + index * width + vector * lanes, m_stride_, bias, to);
    });
  }
  if (epilogue) epilogue(box);
}

void WinogradImages::run_sharing_weights(const Operands& o, float* workspace,
                                         const Epilogue& epilogue) const {
  // Enough groups of eight inputs at a time to be worth a piece.
  const int64_t groups = shape_.in / lanes, grain = 8;
  const int64_t cuts = divided_up(groups, grain);
  o.pool.run(column_blocks_ * cuts, [&](int64_t piece) {
    const int64_t column_block = piece / cuts, begin = piece % cuts * grain;
    transform_weights(o, column_block, begin, std::min(groups, begin + grain),
                      workspace + column_block * u_floats());
  });
  Rooms rooms(workspace + shared_floats(), room_floats(), this->rooms());
  o.pool.run(blocks_.count(), [&](int64_t piece) {
    const Rooms::Room room(rooms);
    float* v = room.data();
    const TileBlock block = blocks_.block(piece);
    transform_images(o, block, 0, groups, v);
    for (int64_t column_block = 0; column_block < column_blocks_; ++column_block) {
      multiply(o, block, column_block, v, workspace + column_block * u_floats(), v + v_floats(),
               epilogue);
    }
  });
}

void WinogradImages::run_sharing_images(const Operands& o, float* workspace,
                                        const Epilogue& epilogue) const {
  const int64_t groups = shape_.in / lanes, grain = 8;
  const int64_t cuts = divided_up(groups, grain);
  Rooms rooms(workspace + shared_floats(), room_floats(), this->rooms());
  for (int64_t first = 0; first < blocks_.count(); first += images_chunk()) {
    const int64_t count = std::min(images_chunk(), blocks_.count() - first);
    o.pool.run(count * cuts, [&](int64_t piece) {
      const int64_t block = piece / cuts, begin = piece % cuts * grain;
      transform_images(o, blocks_.block(first + block), begin, std::min(groups, begin + grain),
                       workspace + block * v_floats());
    });
    o.pool.run(column_blocks_, [&](int64_t column_block) {
      const Rooms::Room room(rooms);
      float* u = room.data();
      transform_weights(o, column_block, 0, groups, u);
      for (int64_t block = 0; block < count; ++block) {
        multiply(o, blocks_.block(first + block), column_block, workspace + block * v_floats(), u,
                 u + u_floats(), epilogue);
      }
    });
  }
}

void WinogradImages::run_with_epilogue(const KernelCall& call, std::span<std::byte> workspace,
                                       const Epilogue& epilogue) const {
  auto* memory = reinterpret_cast<float*>(workspace.data());
  Operands operands{call.inputs[0].data, call.inputs[1].data, nullptr,
                    reinterpret_cast<float*>(call.outputs[0].data), call.pool};
  if (halves_.bias) {
    float* bias = memory + shared_floats() + rooms() * room_floats();
    widen_halves(call.inputs[2].as<Half>(), bias, bias_floats());
    operands.bias = bias;
  } else if (call.has_input(2)) {
    operands.bias = call.inputs[2].as<float>();
  }
  if (sharing_ == Sharing::weights) {
    run_sharing_weights(operands, memory, epilogue);
  } else {
    run_sharing_images(operands, memory, epilogue);
  }
}

}  // namespace tessera::cpu
