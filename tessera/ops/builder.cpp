#include "tessera/ops/builder.h"

#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/ir/verify.h"
#include "tessera/ops/fused_body.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

std::vector<std::optional<TensorType>> operand_types(const Graph& graph,
                                                     std::span<const ValueId> operands) {
  std::vector<std::optional<TensorType>> types;
  types.reserve(operands.size());
  for (const ValueId operand : operands) {
    types.push_back(operand.valid() ? std::optional(graph.type(operand)) : std::nullopt);
  }
  return types;
}

std::vector<TensorType> narrowed_types(std::vector<TensorType> types) {
  for (auto& type : types) type.dtype = narrowed(type.dtype);
  return types;
}

void check_operand_count(const OpDef& op, size_t count) {
  const auto specs = operand_specs(op);
  size_t required = 0;
  bool list = false;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].list) list = true;
    if (!specs[i].list && !specs[i].optional) required = i + 1;
  }
  TESSERA_INVARIANT(count >= required && (list || count <= specs.size()),
                    "{}({}) was given {} operands", op.name, op.operands, count);
}

void check_limit(const OpDef& op, const AttrSpec& spec, const Attr& value) {
  const auto check_one = [&](int64_t number) {
    check(number >= -spec.limit && number <= spec.limit, ErrorKind::value,
          "{}'s attribute '{}' is {}, beyond the largest possible, {}", op.name, spec.name, number,
          spec.limit);
  };
  if (const auto* number = std::get_if<int64_t>(&value)) check_one(*number);
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&value)) {
    for (const int64_t number : *numbers) check_one(number);
  }
}

// What holds for every tensor, whatever the operator.
void check_tensor(const OpDef& op, const char* role, size_t number, const TensorType& type) {
  if (fits_in_memory(type)) return;
  fail(ErrorKind::value,
       "{} {} of {} would be {}, which is negative in size or larger than any memory", role, number,
       op.name, to_string(type));
}

void verify_node(const Graph& graph, const Node& node) {
  const auto types =
      narrowed_types(infer(op(node), operand_types(graph, node.operands), node.attrs));
  TESSERA_INVARIANT(types.size() == node.results.size(), "{} has {} results, its rule says {}",
                    node.op, node.results.size(), types.size());
  for (size_t i = 0; i < types.size(); ++i) {
    TESSERA_INVARIANT(graph.type(node.results[i]) == types[i],
                      "result {} of {} is {}, its rule says {}", i, print_node(graph, node),
                      to_string(graph.type(node.results[i])), to_string(types[i]));
  }
}

}  // namespace

Attrs completed(const OpDef& op, Attrs attrs) {
  for (const auto& [name, value] : attrs) {
    const AttrSpec* spec = nullptr;
    for (const auto& candidate : op.attrs) {
      if (candidate.name == name) spec = &candidate;
    }
    check(spec, "{} has no attribute '{}'", op.name, name);
    check(spec->type == type_of(value), "{}'s attribute '{}' must be of type {}, not {}", op.name,
          name, name_of(spec->type), name_of(type_of(value)));
    check_limit(op, *spec, value);
  }
  for (const auto& spec : op.attrs) {
    if (attrs.has(spec.name) && spec.type == AttrType::body) {
      attrs.set(spec.name, body_attr(completed(attrs.body(spec.name))));
    }
    if (attrs.has(spec.name)) continue;
    if (spec.fallback) {
      attrs.set(spec.name, *spec.fallback);
    } else {
      check(spec.optional, "{} needs the attribute '{}'", op.name, spec.name);
    }
  }
  return attrs;
}

std::vector<TensorType> infer(const OpDef& op, std::span<const std::optional<TensorType>> operands,
                              const Attrs& attrs) {
  check_operand_count(op, operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i]) check_tensor(op, "operand", i, *operands[i]);
  }
  std::vector<TensorType> results = op.infer(OpView(operands, attrs));
  for (size_t i = 0; i < results.size(); ++i) check_tensor(op, "result", i, results[i]);
  return results;
}

void Builder::set_place(Origin origin, Phase phase, int32_t stage) {
  place_.origin = std::move(origin);
  place_.phase = phase;
  place_.stage = stage;
}

void Builder::set_place_of(const Node& node) { set_place(node.origin, node.phase, node.stage); }

std::vector<ValueId> Builder::add_all(std::string_view name, std::vector<ValueId> operands,
                                      Attrs attrs) {
  const OpDef& row = op(name);
  Node node = place_;
  node.op = row.name;
  node.attrs = completed(row, std::move(attrs));
  node.operands = std::move(operands);
  const auto types = narrowed_types(infer(row, operand_types(graph_, node.operands), node.attrs));
  const NodeId id = graph_.add_node(std::move(node), types);
  return graph_.node(id).results;
}

ValueId Builder::add(std::string_view name, std::vector<ValueId> operands, Attrs attrs) {
  const auto results = add_all(name, std::move(operands), std::move(attrs));
  TESSERA_INVARIANT(results.size() == 1, "{} has {} results", name, results.size());
  return results[0];
}

ValueId Builder::scalar(double value, DType dtype) {
  return add("fill", {}, {{"shape", Shape{}}, {"value", value}, {"dtype", narrowed(dtype)}});
}

ValueId Builder::cast(ValueId value, DType dtype) {
  if (type(value).dtype == narrowed(dtype)) return value;
  return add("cast", {value}, {{"dtype", narrowed(dtype)}});
}

ValueId Builder::view(ValueId value, const Shape& new_shape, const Strides& strides,
                      int64_t offset) {
  if (offset == 0 && new_shape == shape(value) && is_contiguous(new_shape, strides)) return value;
  return add("view", {value}, {{"shape", new_shape}, {"strides", strides}, {"offset", offset}});
}

ValueId Builder::reshape(ValueId value, const Shape& new_shape) {
  return view(value, new_shape, contiguous_strides(new_shape));
}

ValueId Builder::expand(ValueId value, const Shape& new_shape) {
  if (new_shape == shape(value)) return value;
  return view(value, new_shape,
              broadcast_strides(shape(value), contiguous_strides(shape(value)), new_shape));
}

ValueId Builder::permute(ValueId value, std::span<const int64_t> order) {
  const Shape& old_shape = shape(value);
  const Strides old_strides = contiguous_strides(old_shape);
  Shape new_shape;
  Strides strides;
  for (const int64_t dim : order) {
    new_shape.push_back(old_shape[static_cast<size_t>(dim)]);
    strides.push_back(old_strides[static_cast<size_t>(dim)]);
  }
  return view(value, new_shape, strides);
}

void verify(const Graph& graph) {
  verify_structure(graph);
  for (const auto& node : graph.nodes()) {
    try {
      verify_node(graph, node);
    } catch (const Error&) {
      // Once more with its text: to print every node takes longer than to check it.
      const ErrorContext where("checking node {}", print_node(graph, node));
      verify_node(graph, node);
    }
  }
}

}  // namespace tessera
