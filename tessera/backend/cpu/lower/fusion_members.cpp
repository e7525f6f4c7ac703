#include "tessera/backend/cpu/lower/fusion_members.h"

#include <algorithm>

#include "tessera/backend/cpu/kernels/epilogue.h"
#include "tessera/backend/cpu/kernels/native.h"
#include "tessera/base/geometry.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/forms.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

constexpr size_t most_cuts = 2;  // a layout adds a dimension for each

// What a view shows, where it shows all of it in its own order and shape.
ValueId without_views(const Graph& graph, ValueId value) {
  const Node* node = graph.producer(value);
  while (node && op(*node).kind == Kind::view &&
         graph.type(node->operands[0]).shape == graph.type(value).shape &&
         same_elements(geometry_of_view(*node), dense(graph.type(value).shape))) {
    value = node->operands[0];
    node = graph.producer(value);
  }
  return value;
}

// The number that every element is. Constants of one element have been made fills.
std::optional<double> number_of(const Graph& graph, ValueId value) {
  const Node* node = graph.producer(value);
  while (node && op(*node).kind == Kind::view) node = graph.producer(node->operands[0]);
  if (!node || node->op != "fill" || graph.type(value).dtype != DType::f32) return std::nullopt;
  return node->attrs.number("value");
}

bool has_fused_size(const TensorType& type) {
  return numel(type.shape) > 0 && type.shape.size() + most_cuts <= most_dimensions;
}

std::optional<FusionMember> sum_member(const Graph& graph, const Node& node) {
  const ValueId operand = without_views(graph, node.operands[0]);
  const TensorType& type = graph.type(operand);
  if (type.dtype != DType::f32 || graph.type(node.results[0]).dtype != DType::f32) {
    return std::nullopt;
  }
  if (!has_fused_size(type)) return std::nullopt;
  BodyResult sum;
  sum.summed = true;
  const auto rank = static_cast<int64_t>(type.shape.size());
  for (const int64_t dim : node.attrs.integers("dim")) sum.dims.push_back(wrap_dim(dim, rank));
  for (int64_t dim = 0; dim < rank && node.attrs.integers("dim").empty(); ++dim) {
    sum.dims.push_back(dim);
  }
  std::sort(sum.dims.begin(), sum.dims.end());
  sum.keepdim = node.attrs.flag("keepdim");
  if (rank == 0) return std::nullopt;
  return FusionMember{.sum = std::move(sum), .reads = {operand}};
}

// Whether the rule still gives the same type when numbers have no dimensions.
bool keeps_type(const Graph& graph, const Node& node, const FusionMember& member) {
  std::vector<std::optional<TensorType>> types;
  for (const ValueId read : member.reads) {
    types.emplace_back(read.valid() ? graph.type(read) : TensorType{DType::f32, {}});
  }
  TensorType type = infer(op(node), types, node.attrs).at(0);
  type.dtype = narrowed(type.dtype);
  return type == graph.type(node.results[0]);
}

}  // namespace

std::optional<FusionMember> fusion_member(const Graph& graph, const Node& node) {
  const OpDef& row = op(node);
  if (&row == &sum_row()) return sum_member(graph, node);
  if (!can_be_step(row) || node.op == "map") return std::nullopt;
  const TensorType& result = graph.type(node.results[0]);
  if (!has_fused_size(result)) return std::nullopt;
  FusionMember member{.step = {row.name, {}, node.attrs, result.dtype}};
  std::vector<DType> types;
  for (const ValueId operand : node.operands) {
    if (!operand.valid()) return std::nullopt;
    types.push_back(graph.type(operand).dtype);
    const auto number = number_of(graph, operand);
    member.step.arguments.push_back(number ? BodyValue{BodyValue::From::number, 0, *number}
                                           : BodyValue{});
    member.reads.push_back(number ? ValueId{} : without_views(graph, operand));
  }
  if (!can_fuse(member.step, types)) return std::nullopt;
  member.has_code = has_code(member.step, types);
  const bool only_numbers = std::none_of(member.reads.begin(), member.reads.end(),
                                         [](ValueId read) { return read.valid(); });
  if (only_numbers || !keeps_type(graph, node, member)) return std::nullopt;
  return member;
}

}  // namespace tessera::cpu
