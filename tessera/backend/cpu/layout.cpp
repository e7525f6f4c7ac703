#include "tessera/backend/cpu/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tessera::cpu {

bool fits(const Layout& layout, const Shape& shape) {
  return std::all_of(layout.cut.begin(), layout.cut.end(), [&](int dim) {
    const auto at = static_cast<size_t>(dim);
    return at < shape.size() && shape[at] > 0 && shape[at] % Layout::group == 0;
  });
}

Geometry physical_geometry(const Layout& layout, const Geometry& logical) {
  Geometry physical = logical;
  for (const int dim : layout.cut) {
    const auto at = static_cast<size_t>(dim);
    physical.shape.push_back(Layout::group);
    physical.strides.push_back(logical.strides[at]);
    physical.shape[at] /= Layout::group;
    physical.strides[at] *= Layout::group;
  }
  return physical;
}

Shape physical_shape(const Layout& layout, const Shape& shape) {
  return physical_geometry(layout, dense(shape)).shape;
}

std::string to_string(const Layout& layout) {
  return layout.plain() ? "plain" : fmt::format("cut{}", fmt::join(layout.cut, ","));
}

}  // namespace tessera::cpu
