// A dense tensor seen as [outer, size, inner] around the dimension that a kernel goes along.
#pragma once

#include <algorithm>

#include "tessera/base/divided_up.h"
#include "tessera/base/shape.h"
#include "tessera/base/thread_pool.h"

namespace tessera::cpu {

struct DimensionCut {
  int64_t outer = 1, size = 1, inner = 1;
};

inline DimensionCut cut_around(const Shape& shape, int64_t dim) {
  const auto rank = static_cast<int64_t>(shape.size());
  const int64_t along = wrap_dim(dim, rank);
  DimensionCut cut;
  for (int64_t i = 0; i < rank; ++i) {
    (i < along ? cut.outer : i == along ? cut.size : cut.inner) *= shape[static_cast<size_t>(i)];
  }
  return cut;
}

// Calls block(outer, first, columns) for up to `most_columns` columns at a time; threads take at
// least `piece_elements` elements each.
template <typename Block>
void run_blocks(ThreadPool& pool, const DimensionCut& cut, int64_t most_columns,
                int64_t piece_elements, const Block& block) {
  const int64_t blocks = divided_up(cut.inner, most_columns);
  const int64_t columns = std::min(most_columns, cut.inner);
  const int64_t grain = std::max<int64_t>(1, piece_elements / (cut.size * columns));
  pool.run_ranges(cut.outer * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % blocks * most_columns;
      block(i / blocks, first, std::min(most_columns, cut.inner - first));
    }
  });
}

}  // namespace tessera::cpu
