// A geometry says where the elements of a tensor lie in a flat piece of memory: element i at
// offset + sum of i[k] * strides[k]. Offsets and strides count elements and are not negative.
#pragma once

#include <optional>

#include "tessera/base/shape.h"

namespace tessera {

struct Geometry {
  Shape shape;
  Strides strides;
  int64_t offset = 0;

  bool operator==(const Geometry&) const = default;
};

Geometry dense(const Shape& shape);

// True where both name the same elements in the same order (strides of size-1 dimensions and of
// empty tensors do not matter).
bool same_elements(const Geometry& a, const Geometry& b);

// One past the last element touched, 0 for an empty tensor.
int64_t extent(const Geometry& geometry);

// `outer` is a geometry over the row-major numbering of `inner`'s elements. The result reaches the
// same elements directly in `inner`'s memory; nothing where no strides can say that.
std::optional<Geometry> compose(const Geometry& inner, const Geometry& outer);

// The row-major shape of memory that `geometry` fills without gaps or overlap, and the order of its
// dimensions there (outermost first); nothing where it has gaps, overlaps or an offset. An empty
// tensor fills no memory, whatever its strides.
struct MemoryOrder {
  std::vector<int64_t> dims;  // dims[k] is the logical dimension that is k-th in memory
};
std::optional<MemoryOrder> memory_order(const Geometry& geometry);

}  // namespace tessera
