#include "tessera/backend/cpu/value_path.h"

#include <algorithm>

#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

// Row by row over `shape`: element `number` of a tensor with these strides.
int64_t offset_of(const Shape& shape, const Strides& strides, int64_t number) {
  int64_t offset = 0;
  for (size_t dim = shape.size(); dim-- > 0;) {
    offset += number % shape[dim] * strides[dim];
    number /= shape[dim];
  }
  return offset;
}

}  // namespace

std::optional<ViewPath> path_to(const Graph& graph, ValueId view, ValueId base) {
  ViewPath path;
  while (view != base) {
    const Node* node = graph.producer(view);
    if (!node || op(*node).kind != Kind::view) return std::nullopt;
    path.push_back(node);
    view = node->operands[0];
  }
  return path;
}

int64_t number_in_base(const ViewPath& path, int64_t number) {
  for (const Node* node : path) {
    number = node->attrs.integer("offset") +
             offset_of(node->attrs.integers("shape"), node->attrs.integers("strides"), number);
  }
  return number;
}

int64_t element_offset(const Place& place, const Shape& shape, int64_t number) {
  const Geometry& geometry = place.geometry;
  if (place.layout.plain()) {
    return geometry.offset + offset_of(geometry.shape, geometry.strides, number);
  }
  // Groups are counted where the dimension was, places within a group at the end.
  int64_t offset = geometry.offset;
  for (size_t dim = shape.size(); dim-- > 0;) {
    const int64_t index = number % shape[dim];
    number /= shape[dim];
    const auto& cut = place.layout.cut;
    const auto at = std::find(cut.begin(), cut.end(), static_cast<int>(dim));
    if (at == cut.end()) {
      offset += index * geometry.strides[dim];
    } else {
      const size_t within = shape.size() + static_cast<size_t>(at - cut.begin());
      offset += index / Layout::group * geometry.strides[dim] +
                index % Layout::group * geometry.strides[within];
    }
  }
  return offset;
}

Shape shown_shape(const Place& place, const Shape& value) {
  if (place.layout.plain() && numel(place.geometry.shape) == numel(value)) return value;
  return logical_shape(place.layout, place.geometry.shape);
}

int64_t number_before_broadcast(const Shape& shown, const Shape& value, int64_t number) {
  if (shown == value) return number;
  int64_t before = 0, stride = 1;
  for (size_t back = 0; back < shown.size(); ++back) {
    const int64_t index = number % shown[shown.size() - 1 - back];
    number /= shown[shown.size() - 1 - back];
    if (back >= value.size()) continue;
    const int64_t size = value[value.size() - 1 - back];
    if (size != 1) before += index * stride;
    stride *= size;
  }
  return before;
}

}  // namespace tessera::cpu
