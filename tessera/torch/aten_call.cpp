#include "tessera/torch/aten_call.h"

#include <charconv>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/split_names.h"
#include "tessera/torch/convert.h"

namespace tessera {
namespace {

// A spelling's text, taken apart once.
struct ParsedSpelling {
  struct Attribute {
    std::string name, argument;       // from the call's argument ...
    std::optional<std::string> fixed;  // ... or a fixed value
  };
  std::vector<std::string> operands;
  std::vector<Attribute> attributes;
  std::vector<std::pair<std::string, size_t>> hidden_mutations;
};

ParsedSpelling parse_spelling(const AtenSpelling& spelling) {
  ParsedSpelling parsed;
  const auto parts = split_names(spelling.arguments, '|');
  if (!parts.empty()) parsed.operands = split_names(parts[0]);
  if (parts.size() > 1) {
    for (const std::string& entry : split_names(parts[1])) {
      const size_t equals = entry.find('=');
      ParsedSpelling::Attribute attribute;
      attribute.name = entry.substr(0, equals);
      const std::string source =
          equals == std::string::npos ? entry : entry.substr(equals + 1);
      if (source.starts_with('#')) {
        attribute.fixed = source.substr(1);
      } else {
        attribute.argument = source;
      }
      parsed.attributes.push_back(std::move(attribute));
    }
  }
  for (const std::string& entry : split_names(spelling.hidden_mutations)) {
    const size_t equals = entry.find('=');
    parsed.hidden_mutations.emplace_back(entry.substr(0, equals),
                                         std::stoul(entry.substr(equals + 1)));
  }
  return parsed;
}

const ParsedSpelling& parsed(const AtenSpelling& spelling) {
  static std::mutex mutex;
  static std::unordered_map<const AtenSpelling*, ParsedSpelling> cache;
  const std::lock_guard lock(mutex);
  auto at = cache.find(&spelling);
  if (at == cache.end()) at = cache.emplace(&spelling, parse_spelling(spelling)).first;
  return at->second;
}

Attr fixed_value(const std::string& text, AttrType type) {
  switch (type) {
    case AttrType::boolean:
      return text == "true";
    case AttrType::integer:
      return static_cast<int64_t>(std::stoll(text));
    case AttrType::number:
      return std::stod(text);
    case AttrType::text:
      return text;
    case AttrType::dtype:
      return dtype_named(text).value();
    case AttrType::integers:
    case AttrType::numbers: {
      std::vector<int64_t> integers;
      std::vector<double> numbers;
      for (const std::string& item : split_names(text.substr(1, text.size() - 2))) {
        integers.push_back(std::stoll(item));
        numbers.push_back(std::stod(item));
      }
      return type == AttrType::integers ? Attr(integers) : Attr(numbers);
    }
    case AttrType::blob:
      break;
  }
  TESSERA_INVARIANT(false, "a fixed attribute '{}' cannot be of type {}", text, name_of(type));
}

Attr attribute_value(const c10::IValue& value, AttrType type) {
  switch (type) {
    case AttrType::boolean:
      return value.isBool() ? value.toBool() : value.toScalar().toLong() != 0;
    case AttrType::integer:
      return value.isBool() ? int64_t{value.toBool()} : value.toScalar().toLong();
    case AttrType::number:
      return value.toScalar().toDouble();
    case AttrType::text:
      return value.toStringRef();
    case AttrType::dtype:
      return dtype_of(value.toScalarType());
    case AttrType::integers:
      if (value.isInt()) return std::vector<int64_t>{value.toInt()};
      if (value.isBoolList()) {
        std::vector<int64_t> flags;
        for (const bool flag : value.toBoolList()) flags.push_back(flag);
        return flags;
      }
      return value.toIntVector();
    case AttrType::numbers:
      if (value.isDouble()) return std::vector<double>{value.toDouble()};
      return value.toDoubleVector();
    case AttrType::blob:
      break;
  }
  TESSERA_INVARIANT(false, "an argument cannot be an attribute of type {}", name_of(type));
}

const AttrSpec& spec_of(const OpDef& op, const std::string& name) {
  for (const AttrSpec& spec : op.attrs) {
    if (spec.name == name) return spec;
  }
  TESSERA_INVARIANT(false, "{}'s spelling names '{}', which is no attribute", op.name, name);
}

void append_operand(const c10::IValue& value, std::vector<CallOperand>& operands) {
  if (value.isTensor()) {
    operands.push_back({value.toTensor(), std::nullopt});
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      operands.push_back({tensor, std::nullopt});
    }
  } else if (value.isList()) {  // Tensor?[]
    for (const c10::IValue& item : value.toListRef()) {
      operands.push_back({item.isNone() ? at::Tensor() : item.toTensor(), std::nullopt});
    }
  } else if (value.isScalar()) {
    operands.push_back({at::Tensor(), value.toScalar()});
  } else {
    operands.push_back({});
  }
}

// In-place and out= overloads compute what a functional overload computes; the names tell which.
AtenMatch find_row(const AtenCall& call) {
  if (const AtenMatch exact = find_aten(call.overload()); exact.op) return exact;
  std::string name = call.overload();
  std::string suffix;
  if (const size_t dot = name.find('.'); dot != std::string::npos) {
    suffix = name.substr(dot + 1);
    name.resize(dot);
  }
  const auto lookup = [](const std::string& base, const std::string& overload) {
    return find_aten(overload.empty() ? base : base + "." + overload);
  };
  if (name.ends_with('_') && !name.ends_with("__")) {
    return lookup(name.substr(0, name.size() - 1), suffix);
  }
  if (suffix == "out") {
    for (const char* overload : {"", "Tensor"}) {
      if (const AtenMatch found = lookup(name, overload); found.op) return found;
    }
  }
  if (suffix.ends_with("_out")) {
    const std::string overload = suffix.substr(0, suffix.size() - 4);
    if (const AtenMatch found = lookup(name, overload); found.op) return found;
    return lookup(name, "dim_" + overload);  // sum.IntList_out goes with sum.dim_IntList
  }
  return {};
}

}  // namespace

AtenCall::AtenCall(const c10::OperatorHandle& op, const torch::jit::Stack& stack)
    : schema_(op.schema()), arguments_(torch::jit::last(stack, op.schema().arguments().size())) {
  const auto& name = op.operator_name();
  const bool aten = name.name.starts_with("aten::");
  overload_ = aten ? name.name.substr(6) : name.name;
  if (!name.overload_name.empty()) overload_ += "." + name.overload_name;
}

const c10::IValue* AtenCall::find(std::string_view name) const {
  for (size_t i = 0; i < count(); ++i) {
    if (schema_.arguments()[i].name() == name) return &arguments_[i];
  }
  return nullptr;
}

at::Tensor AtenCall::tensor(std::string_view name) const {
  const c10::IValue* value = find(name);
  return value && value->isTensor() ? value->toTensor() : at::Tensor();
}

std::vector<at::Tensor> AtenCall::tensors() const {
  std::vector<CallOperand> operands;
  for (const c10::IValue& value : arguments_) {
    if (value.isTensor() || value.isTensorList() ||
        (value.isList() && value.toListRef().size() > 0 && value.toListRef()[0].isTensor())) {
      append_operand(value, operands);
    }
  }
  std::vector<at::Tensor> tensors;
  for (CallOperand& operand : operands) {
    if (operand.tensor.defined()) tensors.push_back(std::move(operand.tensor));
  }
  return tensors;
}

std::vector<size_t> AtenCall::written_arguments() const {
  std::vector<size_t> written;
  for (size_t i = 0; i < count(); ++i) {
    const auto* alias = schema_.arguments()[i].alias_info();
    if (alias && alias->isWrite()) written.push_back(i);
  }
  return written;
}

std::optional<MatchedCall> match(const AtenCall& call) {
  const AtenMatch row = find_row(call);
  if (!row.op) return std::nullopt;
  const ParsedSpelling& spelling = parsed(*row.spelling);
  MatchedCall matched;
  matched.op = row.op;
  matched.hidden_mutations = spelling.hidden_mutations;
  for (const std::string& name : spelling.operands) {
    const c10::IValue* value = call.find(name);
    TESSERA_INVARIANT(value, "{} has no argument '{}'", call.overload(), name);
    append_operand(*value, matched.operands);
  }
  for (const auto& attribute : spelling.attributes) {
    const AttrType type = spec_of(*row.op, attribute.name).type;
    if (attribute.fixed) {
      matched.attrs.set(attribute.name, fixed_value(*attribute.fixed, type));
      continue;
    }
    const c10::IValue* value = call.find(attribute.argument);
    TESSERA_INVARIANT(value, "{} has no argument '{}'", call.overload(), attribute.argument);
    if (!value->isNone()) matched.attrs.set(attribute.name, attribute_value(*value, type));
  }
  matched.attrs = completed(*row.op, std::move(matched.attrs));
  return matched;
}

}  // namespace tessera
