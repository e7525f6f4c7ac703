#include "tessera/backend/cpu/memory_contents.h"

#include <iterator>

namespace tessera::cpu {

void MemoryContents::write(const ByteRange& range, const Place* place) {
  if (range.empty()) return;
  auto at = pieces_.lower_bound(range.begin);
  if (at != pieces_.begin() && std::prev(at)->second.end > range.begin) --at;
  while (at != pieces_.end() && at->first < range.end) {
    const auto [begin, piece] = *at;
    at = pieces_.erase(at);
    if (begin < range.begin) pieces_[begin] = {range.begin, piece.place};
    if (piece.end > range.end) pieces_[range.end] = piece;
  }
  pieces_[range.begin] = {range.end, place};
}

const Place* MemoryContents::holds(const ByteRange& range) const {
  auto at = pieces_.upper_bound(range.begin);
  if (at == pieces_.begin()) return nullptr;
  const Piece& piece = std::prev(at)->second;
  return piece.end >= range.end ? piece.place : nullptr;
}

}  // namespace tessera::cpu
