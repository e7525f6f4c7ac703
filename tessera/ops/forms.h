// The few operators that are the language of graphs itself. Passes and lowering know these by name;
// about all others passes ask kinds and traits.
#pragma once

#include <string_view>

#include "tessera/base/geometry.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/op_def.h"

namespace tessera {

bool is_fill(const Node& node);
bool is_constant(const Node& node);  // bytes; a fill is not one
bool is_view(const Node& node);
bool is_cast(const Node& node);
bool is_conversion(std::string_view op);  // a cast, to nearest or by chance
bool is_copy(const Node& node);

// Whether halves pass through a row's own kernel: it makes, moves or converts numbers and computes
// nothing with them. All others compute in f32.
bool takes_halves(const OpDef& row);

Geometry geometry_of_view(const Node& view);
Attrs view_attributes(const Geometry& geometry);
Attrs fill_attributes(const TensorType& type, double value);
Attrs constant_attributes(const TensorType& type, Blob data);

}  // namespace tessera
