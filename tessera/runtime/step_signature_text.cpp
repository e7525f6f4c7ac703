// The text form of a StepSignature: a line for each part, its attributes in braces.
#include <algorithm>
#include <array>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/runtime/step_signature.h"

namespace tessera {
namespace {

template <typename Enum>
using Words = std::span<const std::pair<std::string_view, Enum>>;

constexpr std::pair<std::string_view, OutputMode> mode_words[] = {
    {"final", OutputMode::final_value},
    {"every_n", OutputMode::every_n},
    {"all", OutputMode::all},
    {"sum", OutputMode::sum}};
constexpr std::pair<std::string_view, StepAnchor::Source> source_words[] = {
    {"output", StepAnchor::Source::output},
    {"state", StepAnchor::Source::state},
    {"hyperparameter", StepAnchor::Source::hyperparameter}};

template <typename Enum>
std::string word_for(Words<Enum> words, Enum value) {
  const auto at = std::find_if(words.begin(), words.end(),
                               [&](const auto& word) { return word.second == value; });
  return std::string(at->first);
}

Attr index_attr(size_t index) { return static_cast<int64_t>(index); }

void set_type(Attrs& attrs, const TensorType& type) {
  attrs.set("dtype", type.dtype);
  attrs.set("shape", type.shape);
}

void set_mode(Attrs& attrs, OutputMode mode, int64_t period) {
  attrs.set("mode", word_for<OutputMode>(mode_words, mode));
  attrs.set("period", period);
}

Attrs attributes_of(const ReturnedTensor& tensor) {
  Attrs attrs;
  if (tensor.output) {
    attrs.set("output", index_attr(*tensor.output));
    return attrs;
  }
  set_type(attrs, tensor.type);
  if (tensor.constant) attrs.set("constant", tensor.constant);
  attrs.set("new", tensor.is_new);
  return attrs;
}

// One line; every attribute that is asked for must be there, and no other may.
class Line {
 public:
  Line(std::string_view text, int number) : number_(number) {
    const size_t blank = std::min(text.find(' '), text.size());
    word_ = text.substr(0, blank);
    std::string_view rest = text.substr(blank);
    try {
      attrs_ = take_attributes(rest);
    } catch (const Error& error) {
      fail_with(error.message());
    }
    if (rest.find_first_not_of(" \r") != std::string_view::npos) {
      fail_with("there is more after the attributes");
    }
  }

  std::string_view word() const { return word_; }
  bool has(std::string_view name) const { return attrs_.has(name); }

  template <typename T>
  T take(std::string_view name) {
    const Attr* found = attrs_.find(name);
    if (!found || !std::holds_alternative<T>(*found)) {
      fail_with(fmt::format("'{}' needs a value for '{}'", word_, name));
    }
    T value = std::get<T>(*found);
    attrs_.erase(name);
    return value;
  }

  size_t take_index(std::string_view name) {
    const auto value = take<int64_t>(name);
    if (value < 0) fail_with(fmt::format("'{}' is {}, which is no index", name, value));
    return static_cast<size_t>(value);
  }

  int64_t take_count(std::string_view name) {
    const auto value = take<int64_t>(name);
    if (value < 1 || value > std::numeric_limits<int32_t>::max()) {
      fail_with(fmt::format("'{}' is {}, which is no count", name, value));
    }
    return value;
  }

  TensorType take_type() {
    TensorType type{take<DType>("dtype"), take<std::vector<int64_t>>("shape")};
    if (!fits_in_memory(type)) fail_with("there is no tensor of that shape");
    return type;
  }

  template <typename Enum>
  Enum take_word(std::string_view name, Words<Enum> words) {
    const auto text = take<std::string>(name);
    for (const auto& [word, value] : words) {
      if (word == text) return value;
    }
    fail_with(fmt::format("'{}' is no {}", text, name));
  }

  void end() const {
    if (!attrs_.empty()) {
      fail_with(fmt::format("'{}' has nothing called '{}'", word_, attrs_.begin()->first));
    }
  }

  [[noreturn]] void fail_with(std::string_view what) const {
    fail(ErrorKind::value, "line {} of the signature: {}", number_, what);
  }

 private:
  int number_;
  std::string_view word_;
  Attrs attrs_;
};

ReturnedTensor returned_of(Line& line) {
  if (line.has("output")) return {.output = line.take_index("output")};
  ReturnedTensor tensor;
  tensor.type = line.take_type();
  tensor.is_new = line.take<bool>("new");
  if (!line.has("constant")) return tensor;
  tensor.constant = line.take<Blob>("constant");
  if (tensor.constant->size() != static_cast<size_t>(bytes(tensor.type))) {
    line.fail_with(fmt::format("a constant {} has {} bytes, not {}", to_string(tensor.type),
                               bytes(tensor.type), tensor.constant->size()));
  }
  return tensor;
}

StepAnchor anchor_of(Line& line) {
  StepAnchor anchor;
  anchor.name = line.take<std::string>("name");
  anchor.tensor = line.take<std::string>("tensor");
  anchor.source = line.take_word<StepAnchor::Source>("source", source_words);
  anchor.index = line.take_index("index");
  anchor.mode = line.take_word<OutputMode>("mode", mode_words);
  anchor.period = line.take_count("period");
  return anchor;
}

void add_line(StepSignature& signature, Line& line) {
  if (line.word() == "step") {
    signature.gradient_accumulation = line.take_count("gradient_accumulation");
    signature.device_iterations = line.take_count("device_iterations");
    signature.structure = line.take<std::string>("structure");
  } else if (line.word() == "input") {
    const auto name = line.take<std::string>("name");
    const auto host = line.take<DType>("host");
    signature.inputs.push_back({name, line.take_type(), host});
  } else if (line.word() == "output") {
    const auto name = line.take<std::string>("name");
    const auto mode = line.take_word<OutputMode>("mode", mode_words);
    const int64_t period = line.take_count("period");
    signature.outputs.push_back({name, line.take_type(), mode, period});
  } else if (line.word() == "returns") {
    signature.returned.push_back(returned_of(line));
  } else if (line.word() == "writes_back") {
    const size_t input = line.take_index("input");
    signature.written_back.push_back({input, line.take_index("output")});
  } else if (line.word() == "anchor") {
    signature.anchors.push_back(anchor_of(line));
  } else {
    line.fail_with(fmt::format("'{}' is no part of a signature", line.word()));
  }
  line.end();
}

}  // namespace

std::string print(const StepSignature& signature) {
  std::string text;
  const auto add = [&](std::string_view word, const Attrs& attrs) {
    text += fmt::format("{} {}\n", word, print_attributes(attrs));
  };
  add("step", {{"gradient_accumulation", signature.gradient_accumulation},
               {"device_iterations", signature.device_iterations},
               {"structure", signature.structure}});
  for (const StepInput& input : signature.inputs) {
    Attrs attrs{{"name", input.name}, {"host", input.host}};
    set_type(attrs, input.type);
    add("input", attrs);
  }
  for (const StepOutput& output : signature.outputs) {
    Attrs attrs{{"name", output.name}};
    set_type(attrs, output.type);
    set_mode(attrs, output.mode, output.period);
    add("output", attrs);
  }
  for (const ReturnedTensor& tensor : signature.returned) add("returns", attributes_of(tensor));
  for (const WrittenBack& changed : signature.written_back) {
    add("writes_back",
        {{"input", index_attr(changed.input)}, {"output", index_attr(changed.output)}});
  }
  for (const StepAnchor& anchor : signature.anchors) {
    Attrs attrs{{"name", anchor.name},
                {"tensor", anchor.tensor},
                {"source", word_for<StepAnchor::Source>(source_words, anchor.source)},
                {"index", index_attr(anchor.index)}};
    set_mode(attrs, anchor.mode, anchor.period);
    add("anchor", attrs);
  }
  return text;
}

StepSignature parse_signature(std::string_view text) {
  StepSignature signature;
  int number = 0;
  bool has_step = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line_text = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line_text.find_first_not_of(" \r") == std::string_view::npos) continue;
    Line line(line_text, number);
    const bool is_step = line.word() == "step";
    if (is_step == has_step) {
      line.fail_with(is_step ? "there are two steps" : "a signature begins with its step");
    }
    has_step = true;
    add_line(signature, line);
  }
  check(has_step, ErrorKind::value, "a signature without a step: the text is empty");
  return signature;
}

}  // namespace tessera
