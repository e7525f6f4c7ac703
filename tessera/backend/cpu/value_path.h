// From an element of a value to where it lies: through the views that lead to the value that was
// written, and through the layout in which a place has it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/backend/cpu/plan.h"
#include "tessera/ir/graph.h"

namespace tessera::cpu {

// The views between a value and one that it is a view of, the value's own first.
using ViewPath = std::vector<const Node*>;

// Nothing where `view` is no view, or view of a view, of `base`. Of a value itself: no nodes.
std::optional<ViewPath> path_to(const Graph& graph, ValueId view, ValueId base);

// The number of an element of the first view, row by row, in the base.
int64_t number_in_base(const ViewPath& path, int64_t number);

// Where the place has an element of its value, in elements from the start of the buffer. `number`
// counts the elements row by row over `shape`: the value's, or the one it is broadcast to.
int64_t element_offset(const Place& place, const Shape& shape, int64_t number);

// The shape that a place shows: its value's, or the one it is broadcast to.
Shape shown_shape(const Place& place, const Shape& value);

// The number of the element that is seen at `number` when `value` is broadcast to `shown`.
int64_t number_before_broadcast(const Shape& shown, const Shape& value, int64_t number);

}  // namespace tessera::cpu
