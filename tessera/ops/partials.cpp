#include "tessera/ops/partials.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

constexpr std::string_view type_name = "partials", key_name = "rounding_key";

}  // namespace

AttrSchema partials_schema() {
  using namespace row_parts;
  return {maybe(data_type(std::string(type_name))), maybe(large(integer(std::string(key_name))))};
}

bool has_partials(const OpDef& row) {
  return std::any_of(row.attrs.begin(), row.attrs.end(),
                     [](const AttrSpec& spec) { return spec.name == type_name; });
}

bool is_convolution(const Graph& graph, const Node& node) {
  const OpDef& row = op(node);
  if (!has_partials(row)) return false;
  std::vector<std::optional<TensorType>> operands;
  for (const ValueId operand : node.operands) {
    operands.push_back(operand.valid() ? std::optional(graph.type(operand)) : std::nullopt);
  }
  std::vector<TensorType> results;
  for (const ValueId result : node.results) results.push_back(graph.type(result));
  const Cost cost = row.cost(OpView(operands, node.attrs), results);
  return !std::get<ContractionCost>(cost).field.empty();
}

std::optional<DType> partials_type(const Attrs& attrs) {
  return attrs.has(type_name) ? std::optional(attrs.dtype(type_name)) : std::nullopt;
}

bool sums_in_halves(const Attrs& attrs) { return partials_type(attrs) == DType::f16; }

bool rounds_partials_by_chance(const Attrs& attrs) {
  return sums_in_halves(attrs) && attrs.has(key_name);
}

void set_partials(Attrs& attrs, DType type, std::optional<int64_t> rounding_key) {
  leave_out_partials(attrs);
  attrs.set(type_name, type);
  if (rounding_key) attrs.set(key_name, *rounding_key);
}

void leave_out_partials(Attrs& attrs) {
  attrs.erase(type_name);
  attrs.erase(key_name);
}

Attrs partials_of_part(const Attrs& attrs, int64_t part) {
  Attrs own;
  if (const auto type = partials_type(attrs)) own.set(type_name, *type);
  if (attrs.has(key_name)) {
    const auto key = static_cast<uint64_t>(attrs.integer(key_name)) + static_cast<uint64_t>(part);
    own.set(key_name, static_cast<int64_t>(key));
  }
  return own;
}

void check_partials(const OpView& op) {
  const auto type = partials_type(op.attrs());
  if (!type) return;
  check(*type == DType::f32 || *type == DType::f16, ErrorKind::value,
        "sums of products are kept in f32 or f16, not in {}", name_of(*type));
  check(*type == DType::f32 || is_floating(op.type(0).dtype), ErrorKind::type,
        "sums of products of {} cannot be kept in f16", name_of(op.type(0).dtype));
}

kernels::Partials partials_of(const KernelCall& call) {
  kernels::Partials partials{.half = sums_in_halves(call.attrs)};
  if (!rounds_partials_by_chance(call.attrs)) return partials;
  partials.by_chance = true;
  partials.rng = call.rng;
  partials.key = static_cast<uint64_t>(call.attrs.integer(key_name));
  return partials;
}

}  // namespace tessera
