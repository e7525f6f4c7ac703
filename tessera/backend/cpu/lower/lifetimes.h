// When each block's memory must be kept, as a range of calls. Blocks that share memory share one
// lifetime, that of their home; outputs live to the end of the micro-batch.
#pragma once

#include <vector>

#include "tessera/backend/cpu/lower/draft.h"

namespace tessera::cpu {

struct Lifetime {
  int64_t first = -1, last = -1;  // calls, both included; -1: never used

  bool used() const { return first >= 0; }
  bool overlaps(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

std::vector<Lifetime> lifetimes(const Draft& draft);  // by home

}  // namespace tessera::cpu
