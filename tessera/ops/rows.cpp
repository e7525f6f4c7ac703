#include "tessera/ops/rows.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::rows {
namespace {

std::string_view describe(Types types) {
  switch (types) {
    case Types::floats:
      return "floating point";
    case Types::numbers:
      return "numbers";
    case Types::integers:
      return "integers or bool";
    case Types::all:
      return "numbers or bool";
  }
  return "?";
}

}  // namespace

DType common_type(const OpView& op, Types types, size_t first) {
  const DType dtype = op.type(first).dtype;
  // Half precision has no kernels of its own yet, but its types follow the same rules.
  const bool known = is_in(types, dtype) || (is_floating(dtype) && is_in(types, DType::f32)) ||
                     (dtype == DType::i64 && is_in(types, DType::i32));
  check(known, ErrorKind::type, "operand {} must be {}, not {}", first, describe(types),
        name_of(dtype));
  for (size_t i = first + 1; i < op.count(); ++i) {
    if (!op.has(i)) continue;
    check(op.type(i).dtype == dtype, ErrorKind::type,
          "operands {} and {} must have the same type, got {} and {}; cast one of them", first, i,
          name_of(dtype), name_of(op.type(i).dtype));
  }
  return dtype;
}

Shape common_shape(const OpView& op) {
  Shape shape;
  for (size_t i = 0; i < op.count(); ++i) {
    if (op.has(i)) shape = broadcast(shape, op.shape(i));
  }
  return shape;
}

std::vector<Sample> map_samples(Types types, size_t operands, const std::vector<Domain>& domains,
                                const Attrs& attrs) {
  std::vector<Sample> samples;
  const auto add = [&](DType dtype, const std::vector<Shape>& shapes, const Attrs& sample_attrs) {
    Sample one{{}, sample_attrs};
    for (size_t i = 0; i < operands; ++i) {
      one.operands.push_back(row_parts::sample(dtype, shapes[std::min(i, shapes.size() - 1)],
                                               domains[std::min(i, domains.size() - 1)]));
    }
    samples.push_back(std::move(one));
  };
  const DType main = types == Types::integers ? DType::i32 : DType::f32;
  add(main, {{2, 3}}, {});
  add(main, {{}}, {});
  add(main, {{5, 1, 7}, operands > 1 ? Shape{3, 1} : Shape{5, 1, 7}, {5, 3, 7}}, attrs);
  add(main, {{17, 1003}, operands > 1 ? Shape{1003} : Shape{17, 1003}, {}}, attrs);
  for (const DType dtype : {DType::i32, DType::i16, DType::i8, DType::u8, DType::boolean}) {
    if (dtype != main && is_in(types, dtype)) add(dtype, {{3, 5}}, {});
  }
  return samples;
}

std::string same_arguments(const OpDef& row) {
  std::string text = row.operands;
  std::erase(text, '?');
  for (size_t i = 0; i < row.attrs.size(); ++i) {
    text += (i == 0 ? " | " : ", ") + row.attrs[i].name;
  }
  return text;
}

OpDef spelled(OpDef row, std::vector<AtenSpelling> aten) {
  row.aten = std::move(aten);
  return row;
}

OpDef with_scalar(OpDef row) {
  const std::string arguments = same_arguments(row);
  row.aten = {{row.name + ".Tensor", arguments}, {row.name + ".Scalar", arguments}};
  return row;
}

OpDef with_neutral(OpDef row, std::vector<std::pair<size_t, double>> neutral) {
  row.traits.neutral = std::move(neutral);
  return row;
}

OpDef passing_on(OpDef row, std::vector<size_t> operands) {
  row.traits.passes_on = std::move(operands);
  return row;
}

}  // namespace tessera::rows
