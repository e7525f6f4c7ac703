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

Shape logical_shape(const Layout& layout, const Shape& physical) {
  Shape shape(physical.begin(), physical.end() - static_cast<std::ptrdiff_t>(layout.cut.size()));
  for (const int dim : layout.cut) shape[static_cast<size_t>(dim)] *= Layout::group;
  return shape;
}

Geometry logical_order(const Layout& layout, const Shape& shape) {
  const Geometry physical = dense(physical_shape(layout, shape));
  Geometry ordered;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    ordered.shape.push_back(physical.shape[dim]);
    ordered.strides.push_back(physical.strides[dim]);
    const auto cut = std::find(layout.cut.begin(), layout.cut.end(), static_cast<int>(dim));
    if (cut == layout.cut.end()) continue;
    const size_t group = shape.size() + static_cast<size_t>(cut - layout.cut.begin());
    ordered.shape.push_back(physical.shape[group]);
    ordered.strides.push_back(physical.strides[group]);
  }
  return ordered;
}

namespace {

bool keeps_cut_dims(const Layout& layout, const Shape& a, const Shape& b) {
  const auto kept =
      static_cast<size_t>(*std::max_element(layout.cut.begin(), layout.cut.end())) + 1;
  return a.size() >= kept && b.size() >= kept &&
         std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(kept), b.begin());
}

// Where a slice begins in each dimension; nothing where `view` is no slice.
std::optional<Shape> slice_begin(const Shape& shape, const Geometry& view) {
  const Strides strides = contiguous_strides(shape);
  if (view.shape.size() != shape.size()) return std::nullopt;
  Shape begin;
  int64_t rest = view.offset;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    if (view.shape[dim] != 1 && view.strides[dim] != strides[dim]) return std::nullopt;
    begin.push_back(rest / strides[dim]);
    rest %= strides[dim];
    if (begin[dim] + view.shape[dim] > shape[dim]) return std::nullopt;
  }
  return begin;
}

}  // namespace

std::optional<Geometry> physical_view(const Layout& layout, const Shape& shape,
                                      const Geometry& view) {
  if (layout.plain()) return view;
  if (numel(shape) == numel(view.shape) && same_elements(view, dense(view.shape))) {
    if (!keeps_cut_dims(layout, shape, view.shape)) return std::nullopt;
    return dense(physical_shape(layout, view.shape));
  }
  const auto begin = slice_begin(shape, view);
  if (!begin || !fits(layout, view.shape)) return std::nullopt;
  const Geometry whole = dense(physical_shape(layout, shape));
  Geometry slice{physical_shape(layout, view.shape), whole.strides, 0};
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const bool cut = std::count(layout.cut.begin(), layout.cut.end(), static_cast<int>(dim)) > 0;
    if (cut && (*begin)[dim] % Layout::group != 0) return std::nullopt;
    slice.offset += (*begin)[dim] / (cut ? Layout::group : 1) * whole.strides[dim];
  }
  return slice;
}

std::string to_string(const Layout& layout) {
  return layout.plain() ? "plain" : fmt::format("cut{}", fmt::join(layout.cut, ","));
}

}  // namespace tessera::cpu
