#include "tessera/torch/host_arguments.h"

#include <ATen/core/jit_type.h>
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/torch/convert.h"

namespace tessera {
namespace {

class Printer {
 public:
  explicit Printer(std::vector<at::Tensor>& operands) : operands_(operands) {}

  std::string print(const c10::IValue& value) {
    if (value.isNone()) return "none";
    if (value.isTensor()) return print(value.toTensor());
    if (value.isBool()) return value.toBool() ? "true" : "false";
    if (value.isInt()) return std::to_string(value.toInt());
    if (value.isDouble()) return print(value.toDouble());
    if (value.isString()) return quoted(value.toStringRef());
    if (value.isDevice()) return "cpu";
    if (value.isGenerator()) return "generator";
    check(value.isList(), "arguments of type {} cannot be part of a program", value.tagKind());
    std::string text;
    for (const c10::IValue& item : value.toListRef()) {
      text += fmt::format("{}{}", text.empty() ? "" : ", ", print(item));
    }
    return fmt::format("[{}]", text);
  }

 private:
  std::string print(const at::Tensor& tensor) {
    if (!tensor.defined()) return "none";
    const DType dtype = dtype_of(tensor.scalar_type());
    operands_.push_back(tensor);
    const size_t number = operands_.size() - 1;
    // PyTorch's kernel would round to bfloat16, a program does not.
    if (narrowed(dtype) == dtype || dtype == DType::bf16) return fmt::format("${}", number);
    return fmt::format("${}:{}", number, name_of(dtype));
  }

  static std::string quoted(const std::string& text) {
    check(text.find('\'') == std::string::npos, "the argument \"{}\" contains a quote", text);
    return fmt::format("'{}'", text);
  }

  // Never the text of a whole number.
  static std::string print(double number) {
    if (std::isnan(number)) return "nan";
    if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
    std::string text = fmt::format("{}", number);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    return text;
  }

  std::vector<at::Tensor>& operands_;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  bool at_end() {
    skip_blanks();
    return text_.empty();
  }

  bool take(std::string_view token) {
    skip_blanks();
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }

  void expect(std::string_view token) {
    check(take(token), ErrorKind::value, "'{}' was expected before '{}'", token, text_);
  }

  HostArgument argument(const c10::TypePtr& type) {
    if (take("none")) return {};
    if (take("generator")) return {HostArgument::Kind::generator, {}, {}};
    if (take("cpu")) return constant(c10::Device(at::kCPU));
    const c10::TypePtr bare = without_optional(type);
    if (bare->kind() == c10::TypeKind::TensorType) {
      return {HostArgument::Kind::tensor, {}, {operand()}};
    }
    const auto list = bare->cast<c10::ListType>();
    return list ? list_argument(list->getElementType()) : constant(scalar());
  }

 private:
  static HostArgument constant(c10::IValue value) {
    return {HostArgument::Kind::constant, std::move(value), {}};
  }

  static c10::TypePtr without_optional(const c10::TypePtr& type) {
    const auto optional = type->cast<c10::OptionalType>();
    return optional ? optional->getElementType() : type;
  }

  HostArgument list_argument(const c10::TypePtr& element) {
    expect("[");
    const bool optional = element->kind() == c10::TypeKind::OptionalType;
    if (without_optional(element)->kind() == c10::TypeKind::TensorType) {
      HostArgument list{
          optional ? HostArgument::Kind::optional_tensors : HostArgument::Kind::tensors, {}, {}};
      while (!take("]")) {
        if (!list.tensors.empty()) expect(",");
        list.tensors.push_back(take("none") ? std::nullopt : std::optional(operand()));
      }
      return list;
    }
    c10::impl::GenericList list(element);
    while (!take("]")) {
      if (!list.empty()) expect(",");
      list.push_back(scalar());
    }
    return constant(std::move(list));
  }

  HostOperand operand() {
    expect("$");
    HostOperand operand{static_cast<size_t>(whole_number()), {}};
    if (!take(":")) return operand;
    operand.dtype = dtype_named(word());
    check(operand.dtype.has_value(), ErrorKind::value, "an element type was expected before '{}'",
          text_);
    return operand;
  }

  c10::IValue scalar() {
    if (take("true")) return true;
    if (take("false")) return false;
    if (take("'")) {
      const size_t end = text_.find('\'');
      check(end != std::string_view::npos, ErrorKind::value, "a text has no end: '{}'", text_);
      std::string value(text_.substr(0, end));
      text_.remove_prefix(end + 1);
      return value;
    }
    const std::string number(word());
    if (number.find_first_of(".en") == std::string::npos) return whole(number);
    double value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    check(error == std::errc() && end == number.data() + number.size(), ErrorKind::value,
          "'{}' is no number", number);
    return value;
  }

  int64_t whole_number() { return whole(word()); }

  static int64_t whole(std::string_view text) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    check(error == std::errc() && end == text.data() + text.size(), ErrorKind::value,
          "'{}' is no whole number", text);
    return value;
  }

  std::string_view word() {
    skip_blanks();
    const size_t end = std::min(text_.find_first_of(",]: "), text_.size());
    const std::string_view taken = text_.substr(0, end);
    text_.remove_prefix(end);
    return taken;
  }

  void skip_blanks() {
    while (text_.starts_with(' ')) text_.remove_prefix(1);
  }

  std::string_view text_;
};

}  // namespace

std::string print_host_arguments(const AtenCall& call, std::vector<at::Tensor>& operands) {
  Printer printer(operands);
  std::string text;
  for (size_t i = 0; i < call.count(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", printer.print(call.argument(i)));
  }
  return text;
}

std::vector<HostArgument> parse_host_arguments(std::string_view text,
                                               const c10::FunctionSchema& schema) {
  const ErrorContext where("the arguments of {}", c10::toString(schema.operator_name()));
  Parser parser(text);
  std::vector<HostArgument> arguments;
  for (const c10::Argument& argument : schema.arguments()) {
    if (!arguments.empty()) parser.expect(",");
    arguments.push_back(parser.argument(argument.type()));
  }
  check(parser.at_end(), ErrorKind::value, "there are more arguments than {} has",
        schema.arguments().size());
  return arguments;
}

}  // namespace tessera
