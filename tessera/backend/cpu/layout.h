// How a tensor's elements lie in memory. A layout cuts some dimensions into groups of eight and
// moves the places within a group to the end: [N,C,H,W] cut at dimension 1 lies as a dense
// [N,C/8,H,W,8]. So the tensor has a physical shape, the one that is dense, and any strided tensor
// of the logical shape can be read in the physical order by strides of its own: element-wise
// kernels need to know nothing of layouts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/geometry.h"

namespace tessera::cpu {

struct Layout {
  static constexpr int64_t group = 8;

  // The dimensions that are cut, in the order in which their groups are appended. None: row-major.
  std::vector<int> cut = {};

  bool plain() const { return cut.empty(); }
  bool operator==(const Layout&) const = default;
};

inline const Layout plain_layout{};
inline const Layout channels_layout{{1}};    // [N, C/8, H, W, 8]
inline const Layout batch_layout{{0}};       // [N/8, C, H, W, 8]
inline const Layout weights_layout{{1, 0}};  // [O/8, I/8, kH, kW, 8 of I, 8 of O]

// Whether the dimensions that are cut exist and are multiples of the group.
bool fits(const Layout& layout, const Shape& shape);

Shape physical_shape(const Layout& layout, const Shape& shape);

Shape logical_shape(const Layout& layout, const Shape& physical);

// A tensor with the given logical strides, in the physical order of the layout.
Geometry physical_geometry(const Layout& layout, const Geometry& logical);

// The same elements, counted from the first of them: what kernels are given.
inline Geometry from_first(Geometry geometry) {
  geometry.offset = 0;
  return geometry;
}

// A tensor of the layout and logical shape in its logical order: the groups stand beside what they
// were cut from, [N,C/8,8,H,W] for channels. Reading it row by row gives the plain tensor.
Geometry logical_order(const Layout& layout, const Shape& shape);

// What `view` of a plain tensor of `shape` would reach, in the physical order of that tensor when
// it has the layout: reshapes that leave the cut dimensions and those before them alone, and slices
// between groups. Nothing where no strides can say it.
std::optional<Geometry> physical_view(const Layout& layout, const Shape& shape,
                                      const Geometry& view);

using tessera::to_string;
std::string to_string(const Layout& layout);  // "plain", "cut1", "cut1,0"

}  // namespace tessera::cpu
