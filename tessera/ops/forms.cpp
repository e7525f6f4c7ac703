#include "tessera/ops/forms.h"

#include <algorithm>

namespace tessera {

bool is_fill(const Node& node) { return node.op == "fill"; }
bool is_constant(const Node& node) { return node.op == "constant"; }
bool is_view(const Node& node) { return node.op == "view"; }
bool is_cast(const Node& node) { return node.op == "cast"; }
bool is_conversion(std::string_view op) { return op == "cast" || op == "stochastic_cast"; }
bool is_copy(const Node& node) { return node.op == "copy"; }

bool takes_halves(const OpDef& row) {
  const bool fused = std::any_of(row.attrs.begin(), row.attrs.end(), [](const AttrSpec& spec) {
    return spec.type == AttrType::body;  // its steps say what is cast
  });
  return fused || row.kind == Kind::view || row.kind == Kind::source || row.traits.moves_elements ||
         row.traits.rounds_to_halves || is_conversion(row.name);
}

Geometry geometry_of_view(const Node& view) {
  return {view.attrs.integers("shape"), view.attrs.integers("strides"),
          view.attrs.integer("offset")};
}

Attrs view_attributes(const Geometry& geometry) {
  return {{"shape", geometry.shape}, {"strides", geometry.strides}, {"offset", geometry.offset}};
}

Attrs fill_attributes(const TensorType& type, double value) {
  return {{"shape", type.shape}, {"value", value}, {"dtype", type.dtype}};
}

Attrs constant_attributes(const TensorType& type, Blob data) {
  return {{"shape", type.shape}, {"dtype", type.dtype}, {"data", std::move(data)}};
}

}  // namespace tessera
