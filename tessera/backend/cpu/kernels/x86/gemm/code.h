// The inner loops of matrix products as machine code, one function for each size of a tile. Two
// kinds: panels multiply rows of the left matrix, element by element, with vectors along the
// columns of the right one; dots multiply vectors along the depth and need both matrices contiguous
// there. All sizes and strides are constants of the code.
#pragma once

#include <cstdint>

#include "tessera/backend/cpu/kernels/x86/generated_code.h"

namespace tessera::cpu {

// What happens to a tile beyond the sum of products.
struct TileEnds {
  bool accumulate = false;  // the sums are added to what lies in the result
  bool bias = false;
  bool relu = false;

  auto operator<=>(const TileEnds&) const = default;
};

// Strides count elements.
struct PanelTile {
  int64_t rows = 6, columns = 16, depth = 0;
  int64_t a_row = 0, a_depth = 1;
  int64_t b_depth = 16;
  bool b_padded = false;  // whole vectors may be read where columns end
  int64_t next_a = 0;     // from one tile to the next below it
  int64_t out_row = 0;
  TileEnds ends;

  auto operator<=>(const PanelTile&) const = default;
};

struct DotTile {
  int64_t rows = 4, columns = 3, depth = 0;
  int64_t a_row = 0, b_column = 0;
  int64_t out_row = 0;
  TileEnds ends;

  auto operator<=>(const DotTile&) const = default;
};

// `count` tiles: below each other for panels, beside each other for dots. `bias` belongs to the
// first column.
using TileFunction = void (*)(const float* a, const float* b, float* out, const float* bias,
                              int64_t count);

constexpr int64_t tile_accumulators = 12;

class GemmCode : public GeneratedCode {
 public:
  explicit GemmCode(size_t bytes) : GeneratedCode(bytes) {}

  // Where the function begins in the code; to be asked for after seal().
  size_t panel(const PanelTile& tile);
  size_t dot(const DotTile& tile);
  void seal();
  TileFunction function(size_t begin) const {
    return reinterpret_cast<TileFunction>(getCode() + begin);
  }

 private:
  void load(const Xbyak::Ymm& to, const Xbyak::Address& from, int64_t lanes);
  void store(const Xbyak::Address& to, const Xbyak::Reg64& base, int64_t offset, int vector,
             int64_t lanes);
  void panel_step(const PanelTile& tile, int64_t k);
  void dot_step(const DotTile& tile, int64_t k, int64_t lanes);
  void panel_end(const PanelTile& tile);
  void dot_end(const DotTile& tile);
  template <typename Step>
  void depth_loop(int64_t steps, int64_t unroll, int64_t a_bytes, int64_t b_bytes, Step step);

  Xbyak::Label masks_;
};

}  // namespace tessera::cpu
