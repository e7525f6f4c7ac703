// What the Winograd kernels share: the shape of a convolution, its cutting into blocks of tiles,
// and room for the blocks that are being worked on.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <thread>

#include "tessera/backend/cpu/kernels/epilogue.h"
#include "tessera/base/divided_up.h"

namespace tessera::cpu {

// 3x3, stride 1, from images [batch, in/8, height, width, 8].
struct WinogradShape {
  int64_t batch = 1, in = 8, out = 8;
  int64_t height = 1, width = 1;
  int64_t pad_height = 0, pad_width = 0;

  int64_t out_height() const { return height + 2 * pad_height - 2; }
  int64_t out_width() const { return width + 2 * pad_width - 2; }
};

// Tiles [images) x [rows) x [columns), counted in this order.
struct TileBlock {
  int64_t image, images, row, rows, column, columns;

  int64_t tiles() const { return images * rows * columns; }
  // work(index, image, row, column) for every tile.
  template <typename Work>
  void each(const Work& work) const {
    int64_t index = 0;
    for (int64_t n = image; n < image + images; ++n) {
      for (int64_t y = row; y < row + rows; ++y) {
        for (int64_t x = column; x < column + columns; ++x) work(index++, n, y, x);
      }
    }
  }
};

// All tiles of a batch, cut evenly into blocks of at most `most` tiles: whole images, whole rows of
// tiles in an image, or parts of a row.
class TileBlocks {
 public:
  TileBlocks(const WinogradShape& shape, int64_t tile, int64_t most);

  int64_t count() const { return image_cuts_ * row_cuts_ * column_cuts_; }
  TileBlock block(int64_t index) const;
  int64_t most_tiles() const { return most_tiles_; }

 private:
  int64_t images_, rows_, columns_;
  int64_t image_cuts_, row_cuts_, column_cuts_;
  int64_t most_tiles_;
};

// Elements of a transformed block lie this far apart, for `floats` of each: an odd number of cache
// lines, so that they do not fall into the same few sets of the cache.
constexpr int64_t element_stride(int64_t floats) {
  constexpr int64_t line = 16;
  return (divided_up(floats, line) | 1) * line;
}

// Equal rooms for the pieces that run at the same time. The lowest free one is taken, so that few
// threads use little memory, again and again. Which one a piece gets does not matter to its result.
class Rooms {
 public:
  static constexpr int64_t most = 16;

  Rooms(float* data, int64_t floats, int64_t count) : data_(data), floats_(floats), count_(count) {}

  class Room {
   public:
    explicit Room(Rooms& rooms) : rooms_(rooms), index_(rooms.take()) {}
    ~Room() { rooms_.taken_.fetch_and(~(uint64_t{1} << index_), std::memory_order_release); }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    float* data() const { return rooms_.data_ + index_ * rooms_.floats_; }

   private:
    Rooms& rooms_;
    int64_t index_;
  };

 private:
  int64_t take() {
    for (;;) {
      uint64_t taken = taken_.load(std::memory_order_relaxed);
      for (int64_t i = 0; i < count_; ++i) {
        const uint64_t bit = uint64_t{1} << i;
        if (taken & bit) continue;
        taken = taken_.fetch_or(bit, std::memory_order_acquire);
        if (!(taken & bit)) return i;
      }
      std::this_thread::yield();  // more threads than rooms
    }
  }

  float* data_;
  int64_t floats_, count_;
  std::atomic<uint64_t> taken_{0};
};

}  // namespace tessera::cpu
