#include "tessera/torch/aten_call.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/ops/aten_spelling.h"
#include "tessera/ops/builder.h"
#include "tessera/torch/convert.h"

namespace tessera {
namespace {

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
    case AttrType::body:
      break;
  }
  TESSERA_UNREACHABLE("an argument cannot be an attribute of type {}", name_of(type));
}

const AttrSpec& spec_of(const OpDef& op, const std::string& name) {
  for (const AttrSpec& spec : op.attrs) {
    if (spec.name == name) return spec;
  }
  TESSERA_UNREACHABLE("{}'s spelling names '{}', which is no attribute", op.name, name);
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

std::optional<DType> type_of_out(const AtenCall& call) {
  for (const size_t i : call.written_arguments()) {
    if (!call.schema().arguments()[i].is_out() || !call.argument(i).isTensor()) continue;
    return dtype_of(call.argument(i).toTensor().scalar_type());
  }
  return std::nullopt;
}

// Whether an overload takes all that the call has but out=, and how much more; nothing where not.
std::optional<size_t> more_arguments(const AtenCall& call, const std::string& overload) {
  const size_t dot = overload.find('.');
  const auto op = c10::Dispatcher::singleton().findSchema(
      {"aten::" + overload.substr(0, dot),
       dot == std::string::npos ? "" : overload.substr(dot + 1)});
  if (!op) return std::nullopt;
  const auto& theirs = op->schema().arguments();
  size_t common = 0;
  for (const c10::Argument& argument : call.schema().arguments()) {
    if (argument.is_out()) continue;
    const bool known = std::any_of(theirs.begin(), theirs.end(), [&](const c10::Argument& their) {
      return their.name() == argument.name() && their.type()->str() == argument.type()->str();
    });
    if (!known) return std::nullopt;
    ++common;
  }
  return theirs.size() - common;
}

// The row of the functional overload that goes with an out= overload. Their names do not say which
// one that is (sum.IntList_out goes with sum.dim_IntList, mean.out with mean.dim), their arguments
// do.
AtenMatch find_functional(const AtenCall& call, const std::string& name) {
  static std::mutex mutex;
  static std::unordered_map<std::string, AtenMatch> found;
  const std::lock_guard lock(mutex);
  if (const auto at = found.find(call.overload()); at != found.end()) return at->second;
  AtenMatch best;
  size_t least = std::numeric_limits<size_t>::max();
  for (const OpDef* row : all_ops()) {
    for (const AtenSpelling& spelling : row->aten) {
      if (spelling.overload.substr(0, spelling.overload.find('.')) != name) continue;
      const auto more = more_arguments(call, spelling.overload);
      if (!more || *more >= least) continue;
      least = *more;
      best = {row, &spelling};
    }
  }
  return found.emplace(call.overload(), best).first->second;
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
  const auto& arguments = call.schema().arguments();
  const bool writes_out = !arguments.empty() && arguments.back().is_out();
  return writes_out ? find_functional(call, name) : AtenMatch{};
}

}  // namespace

AtenCall::AtenCall(const c10::OperatorHandle& op, const torch::jit::Stack& stack)
    : op_(op), arguments_(torch::jit::last(stack, op.schema().arguments().size())) {
  const auto& name = op.operator_name();
  const bool aten = name.name.starts_with("aten::");
  overload_ = aten ? name.name.substr(6) : name.name;
  if (!name.overload_name.empty()) overload_ += "." + name.overload_name;
  facts_ = &facts_of(overload_);
}

const c10::IValue* AtenCall::find(std::string_view name) const {
  for (size_t i = 0; i < count(); ++i) {
    if (schema().arguments()[i].name() == name) return &arguments_[i];
  }
  const std::string_view later = later_name(*facts_, name);
  return later.empty() ? nullptr : find(later);
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
    const auto* alias = schema().arguments()[i].alias_info();
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
    if (type == AttrType::dtype && (!value || value->isNone())) {
      // A type that is left out is that of out=, as if somebody had asked for it.
      if (const auto out = type_of_out(call)) matched.attrs.set(attribute.name, *out);
      continue;
    }
    TESSERA_INVARIANT(value, "{} has no argument '{}'", call.overload(), attribute.argument);
    if (!value->isNone()) matched.attrs.set(attribute.name, attribute_value(*value, type));
  }
  matched.attrs = completed(*row.op, std::move(matched.attrs));
  // Norms and noise leave their arguments alone in evaluation.
  const bool evaluates = matched.attrs.has("training") && !matched.attrs.flag("training");
  if (!evaluates) matched.hidden_mutations = spelling.hidden_mutations;
  for (const size_t i : call.written_arguments()) {
    const std::string& name = call.schema().arguments()[i].name();
    const bool hidden =
        std::any_of(spelling.hidden_mutations.begin(), spelling.hidden_mutations.end(),
                    [&](const auto& mutation) { return mutation.first == name; });
    if (!hidden) matched.written.push_back(i);
  }
  return matched;
}

}  // namespace tessera
