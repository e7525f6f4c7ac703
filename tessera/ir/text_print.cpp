#include <bit>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"

namespace tessera {
namespace {

constexpr PrintOptions in_messages{.elide_blobs_over = 32};

bool is_identifier(std::string_view name) {
  if (name.empty()) return false;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    const bool later = (c >= '0' && c <= '9') || c == '.';
    if (!letter && !(later && i > 0)) return false;
  }
  return true;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string name_text(std::string_view name) {
  return is_identifier(name) ? std::string(name) : quoted(name);
}

// The shortest text that gives the same bits back and cannot be taken for an integer.
std::string number_text(double value) {
  if (std::isnan(value)) {
    const auto bits = std::bit_cast<uint64_t>(value);
    if (bits == 0x7ff8000000000000) return "nan";
    return fmt::format("nan:{:016x}", bits);
  }
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";  // "inf" has an n
  return text;
}

std::string numbers_text(const std::vector<double>& values) {
  if (values.empty()) return "numbers[]";
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ", ";
    text += number_text(values[i]);
  }
  return text + "]";
}

std::string blob_text(const Blob& blob, const PrintOptions& how) {
  if (how.blobs) return fmt::format("bytes[{}]", how.blobs->number_of(blob));
  const size_t most = how.elide_blobs_over;
  if (most > 0 && blob->size() > most) return fmt::format("bytes<{}>", blob->size());
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string text = "bytes\"";
  text.reserve(text.size() + 2 * blob->size() + 1);
  for (const std::byte byte : *blob) {
    text += digits[static_cast<size_t>(byte >> 4)];
    text += digits[static_cast<size_t>(byte & std::byte{15})];
  }
  return text + '"';
}

std::string attr_text(const Attr& attr, const PrintOptions& how);

std::string attrs_text(const Attrs& attrs, const PrintOptions& how) {
  std::string out = "{";
  for (const auto& [name, attr] : attrs) {
    if (out.size() > 1) out += ", ";
    out += name_text(name) + " = " + attr_text(attr, how);
  }
  return out + '}';
}

// Behind an operator: nothing where there are none.
std::string attrs_behind(const Attrs& attrs, const PrintOptions& how) {
  return attrs.empty() ? "" : ' ' + attrs_text(attrs, how);
}

std::string value_text(const BodyValue& value) {
  switch (value.from) {
    case BodyValue::From::operand:
      return fmt::format("a{}", value.index);
    case BodyValue::From::step:
      return fmt::format("%{}", value.index);
    case BodyValue::From::number:
      break;
  }
  const std::string number = number_text(value.number);
  return value.dtype == DType::f32 ? number : fmt::format("{}({})", name_of(value.dtype), number);
}

std::string step_text(const BodyStep& step, const PrintOptions& how) {
  std::string text = name_text(step.op) + '(';
  for (size_t i = 0; i < step.arguments.size(); ++i) {
    text += (i > 0 ? ", " : "") + value_text(step.arguments[i]);
  }
  text += ')' + attrs_behind(step.attrs, how);
  return step.dtype == DType::f32 ? text : fmt::format("{} : {}", text, name_of(step.dtype));
}

std::string result_text(const BodyResult& result) {
  const std::string value = value_text(result.value);
  if (!result.summed) return value;
  std::string dims;
  for (const int64_t dim : result.dims) dims += fmt::format("{}{}", dims.empty() ? "" : ", ", dim);
  return fmt::format("sum {} over [{}]{}", value, dims, result.keepdim ? " keepdim" : "");
}

std::string body_text(const FusedBody& body, const PrintOptions& how) {
  std::string text;
  for (size_t i = 0; i < body.steps.size(); ++i) {
    text += fmt::format("%{} = {}; ", i, step_text(body.steps[i], how));
  }
  text += "out ";
  for (size_t i = 0; i < body.results.size(); ++i) {
    text += (i > 0 ? ", " : "") + result_text(body.results[i]);
  }
  return text;
}

std::string attr_text(const Attr& attr, const PrintOptions& how) {
  switch (type_of(attr)) {
    case AttrType::boolean:
      return std::get<bool>(attr) ? "true" : "false";
    case AttrType::integer:
      return fmt::format("{}", std::get<int64_t>(attr));
    case AttrType::number:
      return number_text(std::get<double>(attr));
    case AttrType::text:
      return quoted(std::get<std::string>(attr));
    case AttrType::dtype:
      return std::string(name_of(std::get<DType>(attr)));
    case AttrType::integers:
      return to_string(std::get<std::vector<int64_t>>(attr));
    case AttrType::numbers:
      return numbers_text(std::get<std::vector<double>>(attr));
    case AttrType::blob:
      return blob_text(std::get<Blob>(attr), how);
    case AttrType::body:
      return '{' + body_text(*std::get<std::shared_ptr<const FusedBody>>(attr), how) + '}';
  }
  return "?";
}

class Printer {
 public:
  Printer(const Graph& graph, const PrintOptions& options) : graph_(graph), options_(options) {}

  // From here on values are called by their order of appearance instead of by their ids.
  void number_by_appearance() {
    numbers_.assign(static_cast<size_t>(graph_.value_count()), -1);
    int32_t next = 0;
    const auto define = [&](ValueId id) { numbers_[static_cast<size_t>(id.index)] = next++; };
    for (const auto& input : graph_.inputs()) define(input.value);
    for (const auto& state : graph_.states()) define(state.initial);
    for (const auto& node : graph_.nodes()) {
      for (const ValueId result : node.results) define(result);
    }
  }

  std::string graph() const {
    std::string out = fmt::format("graph {} {{\n", quoted(graph_.name));
    for (const auto& input : graph_.inputs()) {
      out += fmt::format("  input {} {} {}: {}\n", name_of(input.kind), quoted(input.name),
                         value(input.value), type(input.value));
    }
    for (const auto& state : graph_.states()) {
      out += fmt::format("  state {} {} {}: {}", name_of(state.kind), quoted(state.name),
                         value(state.initial), type(state.initial));
      if (state.after_micro_batch != state.initial) {
        out += " micro_batch " + value(state.after_micro_batch);
      }
      if (state.after_update != state.after_micro_batch) {
        out += " update " + value(state.after_update);
      }
      out += '\n';
    }
    for (const auto& node : graph_.nodes()) out += "  " + this->node(node) + '\n';
    for (const auto& output : graph_.outputs()) {
      out += fmt::format("  output {} {}\n", quoted(output.name), value(output.value));
    }
    return out + "}\n";
  }

  std::string node(const Node& node) const {
    std::string out = node.phase == Phase::update ? "update " : "";
    std::string types;
    for (size_t i = 0; i < node.results.size(); ++i) {
      if (i > 0) out += ", ";
      out += value(node.results[i]);
      types += (i > 0 ? ", " : " : ") + type(node.results[i]);
    }
    out += fmt::format("{}= {}(", node.results.empty() ? "" : " ", name_text(node.op));
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (i > 0) out += ", ";
      out += value(node.operands[i]);
    }
    return out + ')' + attrs_behind(node.attrs, options_) + types + place(node);
  }

 private:
  std::string value(ValueId id) const {
    if (!id.valid()) return "_";
    const bool numbered = static_cast<size_t>(id.index) < numbers_.size();
    return fmt::format("%{}", numbered ? numbers_[static_cast<size_t>(id.index)] : id.index);
  }

  // Messages about a broken graph print its nodes too: an id may be out of range.
  std::string type(ValueId id) const {
    if (!id.valid() || id.index >= graph_.value_count()) return "?";
    return to_string(graph_.type(id));
  }

  std::string place(const Node& node) const {
    std::string out;
    if (options_.origins) {
      const Origin& origin = node.origin;
      if (origin.backward) out += " backward";
      if (!origin.file.empty() || origin.line != 0) {
        out += fmt::format(" @ {}:{}", quoted(origin.file), origin.line);
      }
      if (!origin.module.empty()) out += " in " + quoted(origin.module);
    }
    if (node.stage != 0) out += fmt::format(" stage {}", node.stage);
    return out;
  }

  const Graph& graph_;
  const PrintOptions options_;
  std::vector<int32_t> numbers_;
};

}  // namespace

size_t BlobTable::number_of(const Blob& blob) {
  const auto [at, is_new] = numbers_.emplace(blob.get(), blobs_.size());
  if (is_new) blobs_.push_back(blob);
  return at->second;
}

std::string print_attributes(const Attrs& attrs, BlobTable* blobs) {
  return attrs_text(attrs, {.blobs = blobs});
}

std::string print_body(const FusedBody& body) { return body_text(body, {}); }

std::string print_attr(const Attr& attr) { return attr_text(attr, in_messages); }

std::string print(const Graph& graph, const PrintOptions& options) {
  Printer printer(graph, options);
  printer.number_by_appearance();
  return printer.graph();
}

std::string print_node(const Graph& graph, const Node& node) {
  return Printer(graph, in_messages).node(node);
}

}  // namespace tessera
