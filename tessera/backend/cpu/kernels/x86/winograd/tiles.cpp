#include "tessera/backend/cpu/kernels/x86/winograd/tiles.h"

#include <algorithm>

#include "tessera/base/divided_up.h"

namespace tessera::cpu {
namespace {

// Pieces of at most `most` of `all`.
int64_t cuts(int64_t all, int64_t most) { return divided_up(all, std::max<int64_t>(1, most)); }

}  // namespace

TileBlocks::TileBlocks(const WinogradShape& shape, int64_t tile, int64_t most)
    : images_(shape.batch),
      rows_(divided_up(shape.out_height(), tile)),
      columns_(divided_up(shape.out_width(), tile)),
      image_cuts_(cuts(images_, most / (rows_ * columns_))),
      row_cuts_(image_cuts_ < images_ ? 1 : cuts(rows_, most / columns_)),
      column_cuts_(row_cuts_ < rows_ ? 1 : cuts(columns_, most)),
      most_tiles_(divided_up(images_, image_cuts_) * divided_up(rows_, row_cuts_) *
                  divided_up(columns_, column_cuts_)) {}

TileBlock TileBlocks::block(int64_t index) const {
  const int64_t c = index % column_cuts_, r = index / column_cuts_ % row_cuts_,
                n = index / column_cuts_ / row_cuts_;
  const auto begin = [](int64_t all, int64_t cuts, int64_t i) { return all * i / cuts; };
  const int64_t image = begin(images_, image_cuts_, n), row = begin(rows_, row_cuts_, r),
                column = begin(columns_, column_cuts_, c);
  return {image,  begin(images_, image_cuts_, n + 1) - image,
          row,    begin(rows_, row_cuts_, r + 1) - row,
          column, begin(columns_, column_cuts_, c + 1) - column};
}

}  // namespace tessera::cpu
