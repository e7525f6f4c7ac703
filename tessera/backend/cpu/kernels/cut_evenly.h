// Cutting a length into pieces of nearly equal size.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/divided_up.h"

namespace tessera::cpu {

// In as few pieces as possible, none larger than the limit; larger ones come first.
inline std::vector<int64_t> cut_evenly(int64_t length, int64_t limit) {
  const int64_t pieces = divided_up(length, limit);
  std::vector<int64_t> sizes(static_cast<size_t>(pieces), length / pieces);
  for (int64_t i = 0; i < length % pieces; ++i) ++sizes[static_cast<size_t>(i)];
  return sizes;
}

}  // namespace tessera::cpu
