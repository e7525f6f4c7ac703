#include "tessera/ops/fused_body.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

constexpr size_t most_arguments = 8;
constexpr size_t most_results = 64;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || c == '_'; }

// Rows that can be steps: one result from a fixed number of operands.
const OpDef& step_row(std::string_view name) {
  const OpDef* row = find_op(name);
  check(row, ErrorKind::value, "a fused body: there is no operator '{}'", name);
  bool plain = row->kind == Kind::elementwise && row->cpu &&
               row->results.find_first_of(",*") == std::string::npos;
  for (const OperandSpec& spec : operand_specs(*row)) plain = plain && !spec.list && !spec.optional;
  check(plain, ErrorKind::value, "a fused body: {} is not an element-wise operator of one result",
        name);
  return *row;
}

class BodyParser {
 public:
  explicit BodyParser(std::string_view text) : rest_(text) {}

  Body body() {
    while (peek() == '%') {
      check(body_.steps.size() < Body::most_steps, ErrorKind::value,
            "a fused body has more than {} steps", Body::most_steps);
      step();
      expect(';');
    }
    expect_word("out");
    do {
      check(body_.results.size() < most_results, ErrorKind::value,
            "a fused body has more than {} results", most_results);
      result();
    } while (take(','));
    expect(peek() == '\0' && rest_.empty(), "the end");
    return std::move(body_);
  }

 private:
  void step() {
    expect('%');
    expect(index() == body_.steps.size(), "steps numbered in order");
    expect('=');
    BodyStep step;
    step.row = &step_row(word());
    expect('(');
    while (!take(')')) {
      if (!step.arguments.empty()) expect(',');
      expect(step.arguments.size() < most_arguments, "fewer arguments");
      step.arguments.push_back(value());
    }
    if (peek() == '{') step.attrs = take_attributes(rest_);
    step.attrs = completed(*step.row, std::move(step.attrs));
    const size_t wanted = operand_specs(*step.row).size();
    check(step.arguments.size() == wanted, ErrorKind::value,
          "a fused body: {} takes {} arguments, got {}", step.row->name, wanted,
          step.arguments.size());
    body_.steps.push_back(std::move(step));
  }

  void result() {
    BodyResult result;
    if (peek() == 's') {
      expect_word("sum");
      result.summed = true;
    }
    result.value = value();
    const auto from = result.value.from;
    expect(from == BodyValue::From::step || (from == BodyValue::From::operand && result.summed),
           "a step as a result");
    if (result.summed) {
      expect_word("over");
      expect('[');
      while (!take(']')) {
        if (!result.dims.empty()) expect(',');
        result.dims.push_back(static_cast<int64_t>(index()));
      }
      if (peek() == 'k') {
        expect_word("keepdim");
        result.keepdim = true;
      }
    }
    body_.results.push_back(std::move(result));
  }

  BodyValue value() {
    if (take('%')) {
      const size_t step = index();
      check(step < body_.steps.size(), ErrorKind::value,
            "a fused body: %{} is used before it is made", step);
      return {BodyValue::From::step, step};
    }
    if (take('a')) return {BodyValue::From::operand, index()};
    return {BodyValue::From::number, 0, number()};
  }

  size_t index() {
    peek();
    size_t value = 0, length = 0;
    while (length < rest_.size() && is_digit(rest_[length])) ++length;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + length, value);
    expect(error == std::errc{} && length > 0 && value < 65536, "a number");
    rest_.remove_prefix(length);
    return value;
  }

  double number() {
    peek();
    double value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    expect(error == std::errc{}, "a value such as %0, a0 or 0.5");
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }

  std::string_view word() {
    peek();
    size_t length = 0;
    while (length < rest_.size() && is_word(rest_[length])) ++length;
    expect(length > 0, "a word");
    const std::string_view found = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return found;
  }

  void expect_word(std::string_view wanted) {
    peek();
    expect(rest_.starts_with(wanted), wanted);
    rest_.remove_prefix(wanted.size());
  }

  bool take(char c) {
    if (peek() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void expect(char c) { expect(take(c), std::string_view(&c, 1)); }

  void expect(bool ok, std::string_view what) {
    check(ok, ErrorKind::value, "a fused body: expected {} before '{}'", what, rest_.substr(0, 40));
  }

  char peek() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
    return rest_.empty() ? '\0' : rest_.front();
  }

  std::string_view rest_;
  Body body_;
};

std::string text_of(const BodyValue& value) {
  switch (value.from) {
    case BodyValue::From::operand:
      return fmt::format("a{}", value.index);
    case BodyValue::From::step:
      return fmt::format("%{}", value.index);
    case BodyValue::From::number:
      return print_attr(value.number);
  }
  TESSERA_UNREACHABLE("a value of a body from nowhere");
}

std::string text_of(const BodyStep& step) {
  std::string text = step.row->name + '(';
  for (size_t i = 0; i < step.arguments.size(); ++i) {
    text += (i > 0 ? ", " : "") + text_of(step.arguments[i]);
  }
  text += ')';
  std::string attrs;
  for (const AttrSpec& spec : step.row->attrs) {
    const Attr* attr = step.attrs.find(spec.name);
    if (!attr || (spec.fallback && equal(*attr, *spec.fallback))) continue;
    attrs += fmt::format("{}{} = {}", attrs.empty() ? "" : ", ", spec.name, print_attr(*attr));
  }
  return attrs.empty() ? text : text + " {" + attrs + '}';
}

std::string text_of(const BodyResult& result) {
  const std::string value = text_of(result.value);
  if (!result.summed) return value;
  return fmt::format("sum {} over [{}]{}", value, fmt::join(result.dims, ", "),
                     result.keepdim ? " keepdim" : "");
}

TensorType type_of(const BodyValue& value, std::span<const TensorType> operands,
                   std::span<const TensorType> steps) {
  switch (value.from) {
    case BodyValue::From::operand:
      check(value.index < operands.size(), ErrorKind::value,
            "a fused body uses a{}, but there are {} operands", value.index, operands.size());
      return operands[value.index];
    case BodyValue::From::step:
      return steps[value.index];
    case BodyValue::From::number:
      return {DType::f32, {}};
  }
  TESSERA_UNREACHABLE("a value of a body from nowhere");
}

}  // namespace

Body parse_body(std::string_view text) { return BodyParser(text).body(); }

std::string print(const Body& body) {
  std::string text;
  for (size_t i = 0; i < body.steps.size(); ++i) {
    text += fmt::format("%{} = {}; ", i, text_of(body.steps[i]));
  }
  text += "out ";
  for (size_t i = 0; i < body.results.size(); ++i) {
    text += (i > 0 ? ", " : "") + text_of(body.results[i]);
  }
  return text;
}

std::vector<TensorType> step_types(const Body& body, std::span<const TensorType> operands) {
  Shape shape;
  for (const TensorType& operand : operands) shape = broadcast(shape, operand.shape);
  std::vector<TensorType> types;
  types.reserve(body.steps.size());
  for (const BodyStep& step : body.steps) {
    std::vector<std::optional<TensorType>> arguments;
    for (const BodyValue& value : step.arguments) {
      arguments.emplace_back(type_of(value, operands, types));
    }
    TensorType type = infer(*step.row, arguments, step.attrs).at(0);
    type.dtype = narrowed(type.dtype);
    check(type.shape == shape, ErrorKind::value,
          "a fused body: a step of shape {} where all operands together have {}",
          to_string(type.shape), to_string(shape));
    types.push_back(std::move(type));
  }
  return types;
}

std::vector<TensorType> result_types(const Body& body, std::span<const TensorType> operands) {
  const auto steps = step_types(body, operands);
  Shape shape;
  for (const TensorType& operand : operands) shape = broadcast(shape, operand.shape);
  std::vector<TensorType> types;
  for (const BodyResult& result : body.results) {
    TensorType type = type_of(result.value, operands, steps);
    if (result.summed) {
      for (const int64_t dim : result.dims) {
        check(dim < static_cast<int64_t>(shape.size()), ErrorKind::value,
              "a fused body sums over dimension {} of shape {}", dim, to_string(shape));
      }
      type.shape = shape;  // a smaller operand is summed as often as it is repeated
      const std::optional<TensorType> operand = type;
      type = infer(sum_row(), {&operand, 1}, sum_attributes(result)).at(0);
      type.dtype = narrowed(type.dtype);
    }
    types.push_back(std::move(type));
  }
  return types;
}

double flops_per_element(const BodyStep& step) {
  const std::vector<TensorType> scalar(1);
  const std::vector<std::optional<TensorType>> scalars(step.arguments.size(), scalar[0]);
  return work(step.row->cost(OpView(scalars, step.attrs), scalar));
}

const OpDef& sum_row() { return op("sum"); }

Attrs sum_attributes(const BodyResult& result) {
  return completed(sum_row(), {{"dim", result.dims}, {"keepdim", result.keepdim}});
}

}  // namespace tessera
