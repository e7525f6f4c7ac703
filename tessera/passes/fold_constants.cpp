#include "tessera/passes/fold_constants.h"

#include <cstring>

#include "tessera/base/error.h"
#include "tessera/ir/rewrite.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/forms.h"
#include "tessera/ops/fused_body.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

constexpr int64_t max_result_bytes = 1 << 20;      // larger ones cost more to keep than to make
constexpr int64_t max_operand_elements = 1 << 24;  // reading more may take longer than the program

using Bytes = std::vector<std::byte>;

// Elements that are known now, lying anywhere in `data`.
struct KnownTensor {
  Blob data;
  DType dtype = DType::f32;
  Geometry geometry;

  TensorView view() const {
    // Kernels only read their inputs.
    auto* begin = const_cast<std::byte*>(data->data());
    return {begin + geometry.offset * static_cast<int64_t>(size_of(dtype)), dtype, geometry.shape,
            geometry.strides};
  }
};

Blob run_fill(double value, DType dtype, ThreadPool& pool) {
  const TensorType scalar{dtype, {}};
  auto element = std::make_shared<Bytes>(size_of(dtype));
  const TensorView out{element->data(), dtype, {}, {}};
  const Attrs attrs = completed(op("fill"), fill_attributes(scalar, value));
  op("fill").cpu({.inputs = {}, .outputs = {&out, 1}, .attrs = attrs, .pool = pool, .rng = {}});
  return element;
}

std::optional<KnownTensor> known_source(const Graph& graph, ValueId value, ThreadPool& pool) {
  const Node* node = graph.producer(value);
  if (!node) return std::nullopt;
  const TensorType& type = graph.type(value);
  if (is_fill(*node)) {
    const Geometry one_element{type.shape, Strides(type.shape.size(), 0), 0};
    return KnownTensor{run_fill(node->attrs.number("value"), type.dtype, pool), type.dtype,
                       one_element};
  }
  if (is_constant(*node)) {
    return KnownTensor{node->attrs.blob("data"), type.dtype, dense(type.shape)};
  }
  return std::nullopt;
}

// A constant, a fill or a view of one; views of views were made one before.
std::optional<KnownTensor> known(const Graph& graph, ValueId value, ThreadPool& pool) {
  const Node* node = graph.producer(value);
  if (!node || !is_view(*node)) return known_source(graph, value, pool);
  auto base = known_source(graph, node->operands[0], pool);
  if (!base) return std::nullopt;
  const auto direct = compose(base->geometry, geometry_of_view(*node));
  if (!direct) return std::nullopt;
  base->geometry = *direct;
  return base;
}

bool may_fold(const Graph& graph, const Node& node) {
  const OpDef& row = op(node);
  if (!row.cpu || row.kind == Kind::view || row.kind == Kind::random) return false;
  if (row.kind == Kind::collective) return false;  // of which we know only our own part
  if (reads_random_state(row, node.attrs) || is_fill(node) || is_constant(node)) return false;
  for (const ValueId result : node.results) {
    const int64_t size = bytes(graph.type(result));
    if (size == 0 || size > max_result_bytes) return false;
  }
  for (const ValueId operand : node.operands) {
    if (operand.valid() && numel(graph.type(operand).shape) > max_operand_elements) return false;
  }
  return !node.results.empty();
}

std::vector<Blob> evaluate(const Node& node, std::span<const TensorType> types,
                           std::span<const TensorView> inputs, ThreadPool& pool) {
  std::vector<Blob> results;
  std::vector<Strides> strides;
  std::vector<TensorView> outputs;
  strides.reserve(types.size());  // views point into it
  for (const TensorType& type : types) {
    auto memory = std::make_shared<Bytes>(static_cast<size_t>(bytes(type)));
    strides.push_back(contiguous_strides(type.shape));
    outputs.push_back({memory->data(), type.dtype, type.shape, strides.back()});
    results.push_back(std::move(memory));
  }
  op(node).cpu(
      {.inputs = inputs, .outputs = outputs, .attrs = node.attrs, .pool = pool, .rng = {}});
  return results;
}

template <typename T>
double first_element(const Bytes& data) {
  T value;
  std::memcpy(&value, data.data(), sizeof(T));
  return static_cast<double>(value);
}

std::optional<double> first_as_number(const Bytes& data, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return first_element<float>(data);
    case DType::f16: {
      Half value;
      std::memcpy(&value, data.data(), sizeof value);
      return to_float(value);
    }
    case DType::i32:
      return first_element<int32_t>(data);
    case DType::i16:
      return first_element<int16_t>(data);
    case DType::i8:
      return first_element<int8_t>(data);
    case DType::u8:
    case DType::boolean:
      return first_element<uint8_t>(data);
    default:
      return std::nullopt;
  }
}

// The number that a fill needs to give exactly these bytes.
std::optional<double> uniform_value(const Bytes& data, DType dtype, ThreadPool& pool) {
  const size_t size = size_of(dtype);
  for (size_t at = size; at < data.size(); at += size) {
    if (std::memcmp(data.data(), data.data() + at, size) != 0) return std::nullopt;
  }
  const auto value = first_as_number(data, dtype);
  // Not every pattern of bits survives being a number: a nan may lose its payload.
  if (!value || std::memcmp(run_fill(*value, dtype, pool)->data(), data.data(), size) != 0) {
    return std::nullopt;
  }
  return value;
}

bool fold(Rewriter& r, const Node& node, ThreadPool& pool) {
  if (!may_fold(r.old_graph(), node)) return false;
  std::vector<std::optional<KnownTensor>> operands;
  for (const ValueId operand : node.operands) {
    operands.emplace_back();
    if (!operand.valid()) continue;
    operands.back() = known(r.new_graph(), r.map(operand), pool);
    if (!operands.back()) return false;
  }
  const ErrorContext where("computing {} from constants", print_node(r.old_graph(), node));
  std::vector<TensorView> inputs;
  TensorView left_out;
  left_out.present = false;
  for (const auto& operand : operands) inputs.push_back(operand ? operand->view() : left_out);
  std::vector<TensorType> types;
  for (const ValueId result : node.results) types.push_back(r.old_graph().type(result));
  const auto results = evaluate(node, types, inputs, pool);
  Builder builder(r.new_graph());
  builder.set_place_of(node);
  for (size_t i = 0; i < results.size(); ++i) {
    const auto value = uniform_value(*results[i], types[i].dtype, pool);
    r.replace(node.results[i],
              value ? builder.add("fill", {}, fill_attributes(types[i], *value))
                    : builder.add("constant", {}, constant_attributes(types[i], results[i])));
  }
  return true;
}

}  // namespace

void fold_constants(Graph& graph, CpuLevel level) {
  ThreadPool pool(1, level);
  graph = rewrite(graph, [&](Rewriter& r, const Node& node) {
    if (!fold(r, node, pool)) r.copy(node);
  });
}

}  // namespace tessera
