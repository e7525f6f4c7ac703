// Adds nodes to a graph by operator name; types come from the operator's own rule, 64-bit results
// narrowed to 32 bits, attributes completed with their defaults.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/ops/op_def.h"

namespace tessera {

class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {}

  Graph& graph() { return graph_; }
  const TensorType& type(ValueId value) const { return graph_.type(value); }
  const Shape& shape(ValueId value) const { return type(value).shape; }

  // Everything added from here on carries this origin, phase and stage.
  void set_place(Origin origin, Phase phase, int32_t stage = 0);
  void set_place_of(const Node& node);
  const Origin& origin() const { return place_.origin; }

  // The only result of the new node.
  ValueId add(std::string_view op, std::vector<ValueId> operands, Attrs attrs = {});
  std::vector<ValueId> add_all(std::string_view op, std::vector<ValueId> operands,
                               Attrs attrs = {});

  // Shorthands used all over.
  ValueId scalar(double value, DType dtype);  // a 0-d constant
  ValueId cast(ValueId value, DType dtype);   // the value itself where it has the type already
  // Another geometry over the value; the value itself where the geometry is its own.
  ValueId view(ValueId value, const Shape& shape, const Strides& strides, int64_t offset = 0);
  ValueId reshape(ValueId value, const Shape& shape);
  ValueId expand(ValueId value, const Shape& shape);
  ValueId permute(ValueId value, std::span<const int64_t> order);

 private:
  Graph& graph_;
  Node place_;
};

// Attributes with the defaults of the schema; Error for one that is unknown, missing or of another
// type.
Attrs completed(const OpDef& op, Attrs attrs);

// Result types of a use of `op`, as its rule says (not narrowed).
std::vector<TensorType> infer(const OpDef& op, std::span<const std::optional<TensorType>> operands,
                              const Attrs& attrs);

// Re-runs every node's rule and compares; InternalError names the node. Includes verify_structure.
void verify(const Graph& graph);

}  // namespace tessera
