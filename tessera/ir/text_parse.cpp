// Parses the text form. Texts may come from anywhere: every step looks at what is there before it
// takes it, and what comes out has passed find_broken_promise().
#include <array>
#include <bit>
#include <charconv>
#include <limits>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/ir/verify.h"

namespace tessera {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '.'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

constexpr size_t most_attributes = 1000;

class Parser {
 public:
  explicit Parser(std::string_view text, std::span<const Blob> blobs = {})
      : text_(text), blobs_(blobs) {}

  Graph graph() {
    skip_blank_lines();
    expect_word("graph");
    graph_.name = string();
    expect('{');
    end_line();
    skip_blank_lines();
    while (!take('}')) {
      statement();
      skip_blank_lines();
    }
    skip_blank_lines();
    expect(at_ == text_.size(), "the end of the text after the closing '}'");
    resolve_states();
    check_promises();
    return std::move(graph_);
  }

  Attrs attributes_in_braces() {
    Attrs attrs;
    expect('{');
    attributes(attrs);
    return attrs;
  }

  std::string_view rest() const { return text_.substr(at_); }

  FusedBody body_alone() {
    FusedBody alone = body();
    expect(peek() == '\0' && at_ == text_.size(), "the end of the text");
    return alone;
  }

 private:
  struct StateUse {
    size_t state;
    int64_t after_micro_batch = -1, after_update = -1;
    int line;
  };

  void statement() {
    statement_line_ = line_;
    if (peek() == '%' || peek() == '=') return node(Phase::micro_batch);
    if (take_word("input")) return input();
    if (take_word("state")) return state();
    if (take_word("update")) return node(Phase::update);
    if (take_word("output")) return output();
    fail_expecting("'input', 'state', 'output', a node or '}'");
  }

  void input() {
    const auto kind = one_of({InputKind::data, InputKind::hyperparameter});
    std::string name = string();
    const int64_t number = value_number();
    expect(':');
    TensorType value_type = type();
    end_line();
    define(number, graph_.add_input(kind, std::move(name), std::move(value_type)));
    input_lines_.push_back(statement_line_);
  }

  void state() {
    const auto kind = one_of(
        {StateKind::parameter, StateKind::buffer, StateKind::optimizer, StateKind::accumulator});
    std::string name = string();
    const int64_t number = value_number();
    expect(':');
    TensorType value_type = type();
    StateUse use{.state = graph_.states().size(), .line = statement_line_};
    if (take_word("micro_batch")) use.after_micro_batch = value_number();
    if (take_word("update")) use.after_update = value_number();
    end_line();
    define(number, graph_.add_state(kind, std::move(name), std::move(value_type)));
    state_uses_.push_back(use);
  }

  void node(Phase phase) {
    Node node;
    node.phase = phase;
    std::vector<int64_t> numbers;
    while (peek() == '%') {
      numbers.push_back(value_number());
      if (!take(',')) break;
    }
    expect('=');
    node.op = name("an operator");
    expect('(');
    while (!take(')')) {
      if (!node.operands.empty()) expect(',');
      node.operands.push_back(operand());
    }
    if (take('{')) attributes(node.attrs);
    std::vector<TensorType> types;
    if (take(':')) {
      do {
        types.push_back(type());
      } while (take(','));
    }
    expect(types.size() == numbers.size(), "one type for each result");
    place(node);
    end_line();
    const NodeId id = graph_.add_node(std::move(node), types);
    node_lines_.push_back(statement_line_);
    for (size_t i = 0; i < numbers.size(); ++i) define(numbers[i], graph_.node(id).results[i]);
  }

  void place(Node& node) {
    node.origin.backward = take_word("backward");
    if (take('@')) {
      node.origin.file = string();
      expect(':');
      node.origin.line = small_integer("a line number");
    }
    if (take_word("in")) node.origin.module = string();
    if (take_word("stage")) node.stage = small_integer("a stage");
  }

  void output() {
    std::string name = string();
    graph_.add_output(std::move(name), used(value_number()));
    end_line();
    output_lines_.push_back(statement_line_);
  }

  ValueId operand() {
    if (peek() == '_') {
      expect(word() == "_", "an operand");
      return {};
    }
    return used(value_number());
  }

  void attributes(Attrs& attrs) {
    for (size_t count = 0; !take('}'); ++count) {
      if (count > 0) expect(',');
      // They are kept in order: putting in a great many would take the square of their number.
      if (count == most_attributes) fail_at("there are more than {} attributes", most_attributes);
      const std::string attr_name = name("an attribute's name");
      expect(!attrs.has(attr_name), "each attribute once");
      expect('=');
      attrs.set(attr_name, attribute());
    }
  }

  Attr attribute() {
    const char c = peek();
    if (c == '"') return string();
    if (c == '[') return list();
    if (c == '{') return body_in_braces();
    if (c == '-' || is_digit(c)) return numeral();
    if (!is_letter(c)) fail_expecting("an attribute's value");
    const std::string_view value = word();
    if (value == "true") return true;
    if (value == "false") return false;
    if (value == "inf") return std::numeric_limits<double>::infinity();
    if (value == "nan") return nan_bits();
    if (value == "bytes") return blob();
    if (value == "numbers") {
      expect('[');
      expect(']');
      return std::vector<double>{};
    }
    const auto dtype = dtype_named(value);
    if (!dtype) fail_at("'{}' is not a value", value);
    return *dtype;
  }

  // --- fused bodies ---

  Attr body_in_braces() {
    expect('{');
    Attr attr = body_attr(body());
    expect('}');
    return attr;
  }

  FusedBody body() {
    // Steps have attributes too: without an end to it, a text could be nested as deep as it is
    // long.
    if (in_body_) fail_at("a step of a fused body cannot have a body of its own");
    in_body_ = true;
    FusedBody body;
    while (peek() == '%') {
      if (body.steps.size() == FusedBody::most_steps) {
        fail_at("a fused body has more than {} steps", FusedBody::most_steps);
      }
      expect(value_number() == static_cast<int64_t>(body.steps.size()), "steps numbered in order");
      expect('=');
      body.steps.push_back(body_step(body));
      expect(';');
    }
    expect_word("out");
    do {
      if (body.results.size() == FusedBody::most_results) {
        fail_at("a fused body has more than {} results", FusedBody::most_results);
      }
      body.results.push_back(body_result(body));
    } while (take(','));
    in_body_ = false;
    return body;
  }

  BodyStep body_step(const FusedBody& before) {
    BodyStep step{.op = name("an operator")};
    expect('(');
    while (!take(')')) {
      if (!step.arguments.empty()) expect(',');
      expect(step.arguments.size() < FusedBody::most_arguments, "fewer arguments");
      step.arguments.push_back(body_value(before));
    }
    if (take('{')) attributes(step.attrs);
    if (take(':')) step.dtype = element_type(word());
    return step;
  }

  BodyResult body_result(const FusedBody& body) {
    BodyResult result;
    result.summed = take_word("sum");
    result.value = body_value(body);
    const auto from = result.value.from;
    expect(from == BodyValue::From::step || (from == BodyValue::From::operand && result.summed),
           "a step as a result");
    if (!result.summed) return result;
    expect_word("over");
    expect('[');
    while (!take(']')) {
      if (!result.dims.empty()) expect(',');
      const int64_t dim = integer();
      expect(
          dim >= 0 && dim < FusedBody::most_dims && std::ssize(result.dims) < FusedBody::most_dims,
          "a dimension");
      result.dims.push_back(dim);
    }
    result.keepdim = take_word("keepdim");
    return result;
  }

  // A step before it, an operand, or a number.
  BodyValue body_value(const FusedBody& before) {
    const char c = peek();
    if (c == '%') {
      const int64_t step = value_number();
      if (step >= std::ssize(before.steps)) fail_at("%{} is used before it is made", step);
      return {BodyValue::From::step, static_cast<size_t>(step)};
    }
    if (c == 'a') {
      ++at_;
      expect(at_ < text_.size() && is_digit(text_[at_]), "an operand such as a0");
      const int64_t operand = integer();
      expect(operand < FusedBody::most_operands, "fewer operands");
      return {BodyValue::From::operand, static_cast<size_t>(operand)};
    }
    BodyValue value{.from = BodyValue::From::number};
    const size_t begin = at_;
    const auto dtype = is_letter(c) ? dtype_named(word()) : std::nullopt;
    at_ = dtype ? at_ : begin;
    if (dtype) {
      value.dtype = element_type(name_of(*dtype));
      expect('(');
    }
    const bool word_next = is_letter(peek());
    expect(word_next || peek() == '-' || is_digit(peek()), "a value such as %0, a0 or 0.5");
    const Attr number = attribute_of_list();
    const auto* whole = std::get_if<int64_t>(&number);
    value.number = whole ? static_cast<double>(*whole) : std::get<double>(number);
    if (dtype) expect(')');
    return value;
  }

  Attr list() {
    expect('[');
    std::vector<int64_t> integers;
    std::vector<double> numbers;
    while (!take(']')) {
      if (!integers.empty() || !numbers.empty()) expect(',');
      const Attr element = attribute_of_list();
      if (const auto* integer = std::get_if<int64_t>(&element)) integers.push_back(*integer);
      if (const auto* number = std::get_if<double>(&element)) numbers.push_back(*number);
      if (!integers.empty() && !numbers.empty()) {
        fail_at("a list holds integers and numbers; write every number with a decimal point");
      }
    }
    if (!numbers.empty()) return numbers;
    return integers;
  }

  Attr attribute_of_list() {
    const char c = peek();
    if (c == '-' || is_digit(c)) return numeral();
    const std::string_view value = word();
    if (value == "inf") return std::numeric_limits<double>::infinity();
    if (value == "nan") return nan_bits();
    fail_expecting("a list's element");
  }

  // Digits alone are an integer; with a point or an exponent, a number.
  Attr numeral() {
    skip_blanks();
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("-inf")) {
      at_ += 4;
      return -std::numeric_limits<double>::infinity();
    }
    size_t length = 0;
    bool integer = true;
    while (length < rest.size()) {
      const char c = rest[length];
      const bool after_exponent =
          length > 0 && (rest[length - 1] == 'e' || rest[length - 1] == 'E');
      const bool sign = (c == '-' || c == '+') && (length == 0 || after_exponent);
      const bool floating = c == '.' || c == 'e' || c == 'E';
      if (!is_digit(c) && !sign && !floating) break;
      integer = integer && !floating;
      ++length;
    }
    const std::string_view digits = rest.substr(0, length);
    at_ += length;
    if (integer) return converted<int64_t>(digits);
    return converted<double>(digits);
  }

  template <typename T>
  T converted(std::string_view digits) {
    T value{};
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size()) {
      fail_at("'{}' is not a number, or one too large", digits);
    }
    return value;
  }

  // After the word `nan`: the bits of one that is not the usual one.
  double nan_bits() {
    if (at_ == text_.size() || text_[at_] != ':') return std::bit_cast<double>(0x7ff8000000000000);
    ++at_;
    uint64_t bits = 0;
    for (int i = 0; i < 16; ++i) bits = bits << 4 | static_cast<uint64_t>(hex());
    const auto value = std::bit_cast<double>(bits);
    expect(value != value, "the bits of a nan");
    return value;
  }

  Blob blob() {
    if (peek() == '<') fail_at("these bytes were left out when the text was written");
    if (take('[')) return numbered_blob();
    expect('"');
    auto bytes = std::make_shared<std::vector<std::byte>>();
    while (at_ < text_.size() && text_[at_] != '"') {
      const int high = hex();
      bytes->push_back(static_cast<std::byte>(high << 4 | hex()));
    }
    expect('"');
    return bytes;
  }

  // After `bytes[`.
  Blob numbered_blob() {
    const int64_t number = integer();
    expect(']');
    if (number < 0 || number >= std::ssize(blobs_)) {
      fail_at("there is no bytes[{}]: {} came with the text", number, blobs_.size());
    }
    return blobs_[static_cast<size_t>(number)];
  }

  int hex() {
    const int digit = at_ < text_.size() ? hex_digit(text_[at_]) : -1;
    if (digit < 0) fail_expecting("a hexadecimal digit");
    ++at_;
    return digit;
  }

  DType element_type(std::string_view dtype_name) {
    const auto dtype = dtype_named(dtype_name);
    if (!dtype) fail_at("'{}' is not an element type", dtype_name);
    if (narrowed(*dtype) != *dtype) {
      fail_at("graphs do not hold {}; use {}", dtype_name, name_of(narrowed(*dtype)));
    }
    return *dtype;
  }

  TensorType type() {
    TensorType type{element_type(word()), {}};
    expect('[');
    while (!take(']')) {
      if (!type.shape.empty()) expect(',');
      const int64_t size = integer();
      if (size < 0) fail_at("a size is negative: {}", size);
      type.shape.push_back(size);
      if (type.shape.size() > max_rank) fail_at("a tensor has more than {} dimensions", max_rank);
      if (!fits_in_memory(type)) fail_at("a tensor is larger than any memory");
    }
    return type;
  }

  int64_t integer() {
    if (peek() != '-' && !is_digit(peek())) fail_expecting("an integer");
    const Attr value = numeral();
    const auto* integer = std::get_if<int64_t>(&value);
    expect(integer != nullptr, "an integer");
    return *integer;
  }

  int32_t small_integer(const char* what) {
    const int64_t value = integer();
    expect(value >= 0 && value <= std::numeric_limits<int32_t>::max(), what);
    return static_cast<int32_t>(value);
  }

  int64_t value_number() {
    if (peek() != '%') fail_expecting("a value such as %0");
    ++at_;
    if (at_ == text_.size() || !is_digit(text_[at_])) fail_expecting("a value's number");
    return integer();
  }

  void define(int64_t number, ValueId id) {
    if (!values_.emplace(number, id).second) fail_on(statement_line_, "%{} is made twice", number);
  }

  ValueId used(int64_t number) {
    const auto at = values_.find(number);
    if (at == values_.end()) fail_at("%{} is used before it is made", number);
    return at->second;
  }

  // States name values that are made below them.
  void resolve_states() {
    for (const StateUse& use : state_uses_) {
      const auto resolved = [&](int64_t number, ValueId unchanged) {
        if (number < 0) return unchanged;
        const auto at = values_.find(number);
        if (at == values_.end()) fail_on(use.line, "there is no %{}", number);
        return at->second;
      };
      State& state = graph_.states()[use.state];
      state.after_micro_batch = resolved(use.after_micro_batch, state.initial);
      state.after_update = resolved(use.after_update, state.after_micro_batch);
    }
  }

  void check_promises() {
    const auto broken = find_broken_promise(graph_);
    if (!broken) return;
    const auto i = static_cast<size_t>(broken->index);
    int line = line_;
    if (broken->place == BrokenPromise::Place::input) line = input_lines_[i];
    if (broken->place == BrokenPromise::Place::state) line = state_uses_[i].line;
    if (broken->place == BrokenPromise::Place::node) line = node_lines_[i];
    if (broken->place == BrokenPromise::Place::output) line = output_lines_[i];
    fail_on(line, "{}", broken->what);
  }

  template <typename Enum>
  Enum one_of(std::initializer_list<Enum> values) {
    const std::string_view found = word();
    for (const Enum value : values) {
      if (name_of(value) == found) return value;
    }
    fail_at("'{}' is no kind of input or state", found);
  }

  std::string name(const char* what) {
    if (peek() == '"') {
      std::string text = string();
      expect(!text.empty(), what);
      return text;
    }
    if (!is_letter(peek())) fail_expecting(what);
    return std::string(word());
  }

  std::string string() {
    if (peek() != '"') fail_expecting("a quoted text");
    ++at_;
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
      out += text_[at_] == '\\' ? escaped() : text_[at_++];
    }
    expect(at_ < text_.size() && text_[at_] == '"', "the closing quote of a text");
    ++at_;
    return out;
  }

  char escaped() {
    ++at_;
    const char c = at_ < text_.size() ? text_[at_] : '\n';
    if (c == '\n') fail_expecting("a character after '\\'");
    ++at_;
    if (c == 'n') return '\n';
    if (c == 't') return '\t';
    if (c == '"' || c == '\\') return c;
    if (c != 'x') fail_at("'\\{}' is not an escape", c);
    const int high = hex();
    return static_cast<char>(high << 4 | hex());
  }

  std::string_view word() {
    if (!is_letter(peek())) fail_expecting("a word");
    const size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  bool take_word(std::string_view wanted) {
    skip_blanks();
    const size_t before = at_;
    if (is_letter(peek()) && word() == wanted) return true;
    at_ = before;
    return false;
  }

  void expect_word(std::string_view wanted) {
    if (!take_word(wanted)) fail_expecting(fmt::format("'{}'", wanted));
  }

  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!take(c)) fail_expecting(fmt::format("'{}'", c));
  }

  void expect(bool ok, std::string_view what) {
    if (!ok) fail_expecting(what);
  }

  char peek() {
    skip_blanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  // Blanks and comments, but not the end of the line: it ends a statement.
  void skip_blanks() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == ' ' || c == '\t' || c == '\r') {
        ++at_;
      } else if (text_.substr(at_).starts_with("//")) {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else {
        return;
      }
    }
  }

  void skip_blank_lines() {
    while (take('\n')) ++line_;
  }

  void end_line() {
    if (peek() != '\n') fail_expecting("the end of the line");
    ++at_;
    ++line_;
  }

  std::string found() {
    const char c = peek();
    if (at_ == text_.size()) return "the end of the text";
    if (c == '\n') return "the end of the line";
    const auto byte = static_cast<uint8_t>(c);  // char has a sign on some machines
    if (byte < 0x20 || byte >= 0x7f) return fmt::format("the byte 0x{:02x}", byte);
    if (!is_word(c)) return fmt::format("'{}'", c);
    size_t length = 0;
    while (length < 40 && at_ + length < text_.size() && is_word(text_[at_ + length])) ++length;
    return fmt::format("'{}'", text_.substr(at_, length));
  }

  [[noreturn]] void fail_expecting(std::string_view what) {
    fail_at("expected {}, found {}", what, found());
  }

  template <typename... Args>
  [[noreturn]] void fail_at(fmt::format_string<Args...> text, Args&&... args) {
    fail_on(line_, text, std::forward<Args>(args)...);
  }

  template <typename... Args>
  [[noreturn]] void fail_on(int line, fmt::format_string<Args...> text, Args&&... args) {
    fail(ErrorKind::value, "line {}: {}", line, fmt::format(text, std::forward<Args>(args)...));
  }

  std::string_view text_;
  std::span<const Blob> blobs_;
  size_t at_ = 0;
  int line_ = 1, statement_line_ = 1;
  bool in_body_ = false;
  Graph graph_;
  std::unordered_map<int64_t, ValueId> values_;  // by their numbers in the text
  std::vector<StateUse> state_uses_;
  std::vector<int> input_lines_, node_lines_, output_lines_;
};

}  // namespace

Graph parse(std::string_view text, std::span<const Blob> blobs) {
  return Parser(text, blobs).graph();
}

Attrs take_attributes(std::string_view& text, std::span<const Blob> blobs) {
  Parser parser(text, blobs);
  Attrs attrs = parser.attributes_in_braces();
  text = parser.rest();
  return attrs;
}

FusedBody parse_body(std::string_view text) { return Parser(text).body_alone(); }

}  // namespace tessera
