#include "tessera/passes/canonicalize.h"

#include <algorithm>

#include "tessera/ir/rewrite.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/forms.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

// The same elements with the strides that do not matter set to the dense ones.
Geometry normalized(Geometry geometry) {
  if (numel(geometry.shape) == 0) return dense(geometry.shape);
  const Strides dense_strides = contiguous_strides(geometry.shape);
  for (size_t i = 0; i < geometry.shape.size(); ++i) {
    if (geometry.shape[i] == 1) geometry.strides[i] = dense_strides[i];
  }
  return geometry;
}

void rebuild_view(Rewriter& r, const Node& node) {
  Graph& graph = r.new_graph();
  ValueId base = r.map(node.operands[0]);
  Geometry geometry = geometry_of_view(node);
  const Node* below = graph.producer(base);
  if (below && is_view(*below)) {
    if (const auto direct = compose(geometry_of_view(*below), geometry)) {
      geometry = *direct;
      base = below->operands[0];
      below = graph.producer(base);
    }
  }
  const TensorType& base_type = graph.type(base);
  if (same_elements(geometry, dense(base_type.shape))) {
    r.replace(node.results[0], base);
    return;
  }
  Builder builder(graph);
  builder.set_place_of(node);
  // An expanded fill stays a view: it then costs one element of memory instead of all.
  if (below && is_fill(*below) && numel(geometry.shape) <= numel(base_type.shape)) {
    const TensorType type{base_type.dtype, geometry.shape};
    const double value = below->attrs.number("value");
    r.replace(node.results[0], builder.add("fill", {}, fill_attributes(type, value)));
    return;
  }
  r.replace(node.results[0],
            builder.add("view", {base}, view_attributes(normalized(std::move(geometry)))));
}

// Whether a view shows every element of a dense tensor once, in whatever order.
bool is_permuted(const Geometry& view, const Shape& base) {
  if (view.offset != 0 || numel(view.shape) != numel(base)) return false;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] != 1) dims.emplace_back(view.strides[i], view.shape[i]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t run = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != run) return false;
    run *= size;
  }
  return true;
}

// Halves that are turned around are widened as they lie, and turned around then: that is another
// geometry where the other way is a copy through strides. Whether a cast was there.
bool rebuild_widened_view(Rewriter& r, const Node& node) {
  Graph& graph = r.new_graph();
  if (!is_cast(node) || r.old_graph().type(node.results[0]).dtype != DType::f32) return false;
  const ValueId halves = r.map(node.operands[0]);
  const Node* view = graph.producer(halves);
  if (graph.type(halves).dtype != DType::f16 || !view || !is_view(*view)) return false;
  const Geometry geometry = geometry_of_view(*view);
  const ValueId base = view->operands[0];
  if (numel(geometry.shape) == 0 || !is_permuted(geometry, graph.type(base).shape)) return false;
  Builder builder(graph);
  builder.set_place_of(node);
  const ValueId wide = builder.cast(base, DType::f32);
  r.replace(node.results[0], builder.add("view", {wide}, view_attributes(geometry)));
  return true;
}

// Whether every element of a value in f32 is a half, because it was one and nothing computed with
// it.
bool is_of_halves(const Graph& graph, ValueId value, int most_nodes = 8) {
  const Node* node = value.valid() ? graph.producer(value) : nullptr;
  if (!node || node->results[0] != value || most_nodes == 0) return false;
  if (is_cast(*node) && graph.type(node->operands[0]).dtype == DType::f16) return true;
  const std::vector<size_t>& passed = op(*node).traits.passes_on;
  return !passed.empty() && std::all_of(passed.begin(), passed.end(), [&](size_t operand) {
    return is_of_halves(graph, node->operands[operand], most_nodes - 1);
  });
}

// What is a half already stays one, by chance or not: without a random number.
bool rebuild_exact_rounding(Rewriter& r, const Node& node) {
  if (!is_conversion(node.op) || is_cast(node)) return false;
  if (!is_of_halves(r.new_graph(), r.map(node.operands[0]))) return false;
  Builder builder(r.new_graph());
  builder.set_place_of(node);
  r.replace(node.results[0], builder.cast(r.map(node.operands[0]), DType::f16));
  return true;
}

// The value of a fill, looking through views of it.
std::optional<double> filled_with(const Graph& graph, ValueId value) {
  const Node* node = value.valid() ? graph.producer(value) : nullptr;
  while (node && is_view(*node)) node = graph.producer(node->operands[0]);
  if (!node || !is_fill(*node)) return std::nullopt;
  return node->attrs.number("value");
}

// The operand (in the new graph) that is the node's result already; not valid() where none is.
ValueId unchanged_operand(const Rewriter& r, const Graph& graph, const Node& node) {
  const auto is_result = [&](ValueId value) {
    return graph.type(value) == r.old_graph().type(node.results[0]);
  };
  if (is_cast(node)) {
    const ValueId operand = r.map(node.operands[0]);
    return is_result(operand) ? operand : ValueId{};
  }
  if (is_copy(node)) {
    // A copy of a view is where somebody wanted dense memory.
    const ValueId operand = r.map(node.operands[0]);
    const Node* producer = graph.producer(operand);
    return producer && op(*producer).kind == Kind::view ? ValueId{} : operand;
  }
  if (node.operands.size() != 2) return {};
  for (const auto& [i, neutral] : op(node).traits.neutral) {
    if (filled_with(graph, r.map(node.operands[i])) != neutral) continue;
    const ValueId other = r.map(node.operands[1 - i]);
    if (other.valid() && is_result(other)) return other;
  }
  return {};
}

}  // namespace

void canonicalize(Graph& graph) {
  graph = rewrite(graph, [](Rewriter& r, const Node& node) {
    if (is_view(node)) return rebuild_view(r, node);
    if (rebuild_widened_view(r, node) || rebuild_exact_rounding(r, node)) return;
    const ValueId same = unchanged_operand(r, r.new_graph(), node);
    if (same.valid()) return r.replace(node.results[0], same);
    r.copy(node);
  });
}

}  // namespace tessera
