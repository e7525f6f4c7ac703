// Operators that only move elements: other geometries over a tensor, writes into windows of one,
// and constants.
#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/geometry.h"
#include "tessera/base/scratch.h"
#include "tessera/kernels/copy.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/families.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

std::vector<TensorType> same_as_first(const OpView& op) { return {op.type(0)}; }

Cost cost_of_copy(const OpView&, std::span<const TensorType> results) {
  return CopyCost{2 * bytes(results[0])};
}

Cost cost_of_source(const OpView&, std::span<const TensorType> results) {
  return CopyCost{bytes(results[0])};
}

Cost cost_of_nothing(const OpView&, std::span<const TensorType>) { return CopyCost{0}; }

void check_type(const TensorType& type) {
  for (const int64_t size : type.shape)
    check(size >= 0, "a size cannot be negative: {}", to_string(type.shape));
  check(fits_in_memory(type), "{} is larger than any memory", to_string(type));
}

// As extent(), for numbers that nobody has looked at; nothing where it is larger than any memory.
std::optional<int64_t> checked_extent(const Geometry& geometry) {
  if (numel(geometry.shape) == 0) return 0;
  int64_t last = geometry.offset;
  for (size_t i = 0; i < geometry.shape.size(); ++i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(geometry.shape[i] - 1, geometry.strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return std::nullopt;
    }
  }
  if (last == std::numeric_limits<int64_t>::max()) return std::nullopt;
  return last + 1;
}

void check_inside(const Geometry& window, const TensorType& whole, std::string_view what) {
  check_type({whole.dtype, window.shape});
  check(window.shape.size() == window.strides.size(), "{}: {} sizes but {} strides", what,
        window.shape.size(), window.strides.size());
  bool negative = window.offset < 0;
  for (const int64_t stride : window.strides) negative |= stride < 0;
  check(!negative, "{}: strides and offset cannot be negative, got {} and {}", what,
        to_string(window.strides), window.offset);
  const auto reached = checked_extent(window);
  check(reached && *reached <= numel(whole.shape),
        "{}: sizes {} with strides {} at offset {} reach outside a tensor of shape {}", what,
        to_string(window.shape), to_string(window.strides), window.offset, to_string(whole.shape));
}

// ---- view, write_view

std::vector<TensorType> infer_view(const OpView& op) {
  const Geometry geometry{op.attrs().integers("shape"), op.attrs().integers("strides"),
                          op.attrs().integer("offset")};
  check_inside(geometry, op.type(0), "view");
  return {{op.type(0).dtype, geometry.shape}};
}

// Materialises the view, for constants and for consumers that need their operand dense.
void run_view(const KernelCall& call) {
  const TensorView& x = call.inputs[0];
  const kernels::Dense dense_x(x, call.pool);
  const kernels::Window window(dense_x.view(), scratch_copy(call.attrs.integers("shape")),
                               scratch_copy(call.attrs.integers("strides")),
                               call.attrs.integer("offset"));
  kernels::copy(window.view(), call.outputs[0], call.pool);
}

std::vector<TensorType> infer_write_view(const OpView& op) {
  const Geometry window{op.shape(1), op.attrs().integers("strides"), op.attrs().integer("offset")};
  check_inside(window, op.type(0), "write_view");
  for (size_t i = 0; i < window.shape.size(); ++i) {
    check(window.shape[i] <= 1 || window.strides[i] != 0,
          "write_view: cannot write {} values of dimension {} to one place; write to a clone "
          "instead of an expanded tensor",
          window.shape[i], i);
  }
  check(op.type(0).dtype == op.type(1).dtype, "write_view: cannot write {} into {}",
        name_of(op.type(1).dtype), name_of(op.type(0).dtype));
  return {op.type(0)};
}

void run_write_view(const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  const TensorView& source = call.inputs[1];
  if (call.inputs[0].data != out.data) kernels::copy(call.inputs[0], out, call.pool);
  const kernels::Window window(out, kernels::shape_of(source),
                               scratch_copy(call.attrs.integers("strides")),
                               call.attrs.integer("offset"));
  kernels::copy(source, window.view(), call.pool);
}

Cost cost_of_write_view(const OpView& op, std::span<const TensorType>) {
  return GatherCost{numel(op.shape(1)), 2 * bytes(op.type(1))};
}

// ---- copy, fill, constant

void run_copy(const KernelCall& call) { kernels::copy(call.inputs[0], call.outputs[0], call.pool); }

std::vector<TensorType> infer_fill(const OpView& op) {
  const TensorType type{op.attrs().dtype("dtype"), op.attrs().integers("shape")};
  check_type(type);
  return {type};
}

void run_fill(const KernelCall& call) {
  kernels::fill(call.attrs.number("value"), call.outputs[0], call.pool);
}

std::vector<TensorType> infer_constant(const OpView& op) {
  const auto types = infer_fill(op);
  const Blob& data = op.attrs().blob("data");
  check(data && static_cast<int64_t>(data->size()) == bytes(types[0]),
        "a constant of type {} has {} bytes, not {}", to_string(types[0]), bytes(types[0]),
        data ? data->size() : 0);
  return types;
}

void run_constant(const KernelCall& call) {
  const Blob& data = call.attrs.blob("data");
  if (!data->empty()) std::memcpy(call.outputs[0].data, data->data(), data->size());
}

Blob sample_bytes(size_t count) {
  return std::make_shared<const std::vector<std::byte>>(count, std::byte{1});
}

std::vector<OpDef> make_rows() {
  const AttrSpec dtype = data_type("dtype");
  return {
      {.name = "view",
       .operands = "x",
       .results = "out",
       .doc = "Another geometry over x's row-major elements.",
       .kind = Kind::view,
       .attrs = {large(ints("shape")), large(ints("strides")), large(integer("offset", 0))},
       .traits = {.moves_elements = true, .passes_on = {0}},
       .infer = infer_view,
       .cost = cost_of_nothing,
       .cpu = run_view,
       .samples =
           {Sample{{reals({4, 6})}, {{"shape", Ints{6, 4}}, {"strides", Ints{1, 6}}}},
            Sample{{reals({4, 6})},
                   {{"shape", Ints{2, 3, 5}}, {"strides", Ints{12, 2, 0}}, {"offset", attr(1)}}},
            Sample{{sample(DType::u8, {8}, {0, 9})},
                   {{"shape", Ints{2, 4}}, {"strides", Ints{4, 1}}}}}},
      {.name = "write_view",
       .operands = "base, source",
       .results = "out",
       .doc = "base with source written into the window that strides and offset describe.",
       .kind = Kind::gather,
       .attrs = {large(ints("strides")), large(integer("offset", 0))},
       .traits = {.in_place = {{0, 0}}, .moves_elements = true},
       .infer = infer_write_view,
       .cost = cost_of_write_view,
       .cpu = run_write_view,
       .samples = {Sample{{reals({4, 6}), reals({2, 3})},
                          {{"strides", Ints{12, 2}}, {"offset", attr(1)}}},
                   Sample{{integers({8}, {-9, 9}), integers({3}, {-9, 9})},
                          {{"strides", Ints{2}}}}}},
      {.name = "copy",
       .operands = "x",
       .results = "out",
       .doc = "x in fresh memory.",
       .kind = Kind::gather,
       .aten = {{"clone", "self"}},
       .traits = {.moves_elements = true, .passes_on = {0}},
       .infer = same_as_first,
       .cost = cost_of_copy,
       .cpu = run_copy,
       .samples = {Sample{{reals({3, 5})}}, Sample{{booleans({7})}}}},
      {.name = "fill",
       .operands = "",
       .results = "out",
       .doc = "A tensor with the same value everywhere.",
       .kind = Kind::source,
       .attrs = {large(ints("shape")), number("value"), dtype},
       .infer = infer_fill,
       .cost = cost_of_source,
       .cpu = run_fill,
       .samples = {Sample{{}, {{"shape", Ints{2, 3}}, {"value", 1.5}, {"dtype", DType::f32}}},
                   Sample{{}, {{"shape", Ints{}}, {"value", -3.0}, {"dtype", DType::i32}}},
                   Sample{{}, {{"shape", Ints{4}}, {"value", 1.0}, {"dtype", DType::boolean}}}}},
      {.name = "constant",
       .operands = "",
       .results = "out",
       .doc = "A tensor known when the program is made.",
       .kind = Kind::source,
       .attrs = {large(ints("shape")), dtype, blob("data")},
       .infer = infer_constant,
       .cost = cost_of_source,
       .cpu = run_constant,
       .samples = {Sample{
           {}, {{"shape", Ints{2, 3}}, {"dtype", DType::i32}, {"data", sample_bytes(24)}}}}},
  };
}

}  // namespace

std::span<const OpDef> families::view() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
