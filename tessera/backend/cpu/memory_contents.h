// What a piece of memory holds, byte by byte, while a Plan is followed without running it.
#pragma once

#include <cstdint>
#include <map>

#include "tessera/backend/cpu/plan.h"

namespace tessera::cpu {

struct ByteRange {
  int64_t begin = 0, end = 0;

  bool empty() const { return begin >= end; }
  bool overlaps(const ByteRange& other) const { return begin < other.end && other.begin < end; }
};

class MemoryContents {
 public:
  // From now on the range holds what was written through `place`, or, for null, nothing of use.
  void write(const ByteRange& range, const Place* place);

  // The place through which all of the range was written; null where there is none.
  const Place* holds(const ByteRange& range) const;

  void clear() { pieces_.clear(); }

 private:
  struct Piece {
    int64_t end = 0;
    const Place* place = nullptr;
  };
  std::map<int64_t, Piece> pieces_;  // by begin; they do not overlap
};

}  // namespace tessera::cpu
