// Samples of the operator table as calls of ATen: drawn in several layouts and types, with odd
// values, and a scalar made of the results to differentiate.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "tessera/ops/aten_spelling.h"
#include "tessera/ops/registry.h"
#include "tessera/torch/aten_facts.h"
#include "tessera/torch/compat.h"
#include "tessera/torch/convert.h"

namespace tessera {

enum class Layout {
  dense,
  transposed,
  stepped,
  mixed,  // the first tensor transposed, the others dense
  channels_last,
  rotated,  // the first dimension moves fastest
  expanded  // one element along the first dimension
};

inline at::Tensor stored_in_order(const at::Tensor& values, std::vector<int64_t> order) {
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return values.permute(order).contiguous().permute(back);
}

inline at::Tensor laid_out(const at::Tensor& values, Layout layout, bool first = true) {
  if (layout == Layout::mixed) layout = first ? Layout::transposed : Layout::dense;
  if (layout == Layout::transposed && values.dim() >= 2) {
    return values.transpose(0, -1).contiguous().transpose(0, -1);
  }
  if (layout == Layout::stepped && values.dim() >= 1 && values.numel() > 0) {
    auto sizes = values.sizes().vec();
    sizes.back() *= 2;
    at::Tensor wide = at::zeros(sizes, values.options());
    at::Tensor every_second = wide.slice(-1, 0, compat::nullopt, 2);
    every_second.copy_(values);
    return every_second;
  }
  if (layout == Layout::rotated || (layout == Layout::channels_last && values.dim() > 2)) {
    std::vector<int64_t> order(static_cast<size_t>(values.dim()));
    std::iota(order.begin(), order.end(), 0);
    const auto moved = order.begin() + (layout == Layout::rotated ? 0 : 1);
    if (moved < order.end()) std::rotate(moved, moved + 1, order.end());
    return stored_in_order(values, order);
  }
  if (layout == Layout::expanded && values.dim() >= 1 && values.numel() > 0) {
    return values.slice(0, 0, 1).clone().expand(values.sizes());
  }
  return values;
}

// What is drawn instead of what the sample says, to try more than a sample's author thought of.
struct Tweak {
  std::vector<at::ScalarType> types =
      {};                     // of operands that are float32; the last repeats, none: as is
  bool odd = false;           // NaN, infinities, zeros and extremes among the floats
  bool half_scalars = false;  // numbers, and tensors of one, are halves, as they are beside halves
};

// Elements that calculations trip over, of a type whose numbers end at `tiny` and `huge`.
template <typename T>
at::Tensor with_odd_values(at::Tensor values, size_t operand, float tiny, float huge) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float odd[] = {std::numeric_limits<float>::quiet_NaN(),
                       infinity,
                       0.0F,
                       -infinity,
                       -0.0F,
                       tiny,
                       -huge,
                       1.0F,
                       -tiny,
                       huge,
                       -1.0F};
  values = values.contiguous();
  auto* data = values.data_ptr<T>();
  // Every second element, in an order of its own for each operand, so that all kinds of pairs meet.
  for (int64_t i = 0; i < values.numel(); i += 2) {
    data[i] = odd[(static_cast<size_t>(i) / 2 * (operand + 1) + operand * 4) % std::size(odd)];
  }
  return values;
}

inline at::Tensor drawn(const Sample& sample, size_t index, Layout layout, const Tweak& tweak) {
  const SampleOperand& operand = sample.operands[index];
  const auto type = operand.type.dtype;
  // ATen's index types are 64 bits wide where graphs have 32.
  auto scalar_type = type == DType::i32 ? at::kLong : scalar_type_of(type);
  if (type == DType::f32 && !tweak.types.empty()) {
    scalar_type = tweak.types[std::min(index, tweak.types.size() - 1)];
  }
  at::Tensor values =
      at::rand(operand.type.shape, at::kDouble) * (operand.high - operand.low) + operand.low;
  if (scalar_type == at::kBool) {
    return laid_out(values > (operand.low + operand.high) / 2, layout, index == 0);
  }
  if (!at::isFloatingType(scalar_type)) values = values.floor();
  if (tweak.half_scalars && values.dim() == 0) values = values.to(at::kHalf);
  if (scalar_type == at::kByte) values = values.abs();
  values = values.to(scalar_type);
  if (tweak.odd && scalar_type == at::kFloat) {
    values = with_odd_values<float>(values, index, 1e-40F, 3e38F);
  }
  if (tweak.odd && scalar_type == at::kHalf) {
    values = with_odd_values<at::Half>(values, index, 3e-7F, 65504.0F);
  }
  return laid_out(values, layout, index == 0);
}

inline c10::IValue as_argument(const Attr& attr, const c10::TypePtr& type) {
  if (const auto* x = std::get_if<bool>(&attr)) return *x;
  if (const auto* x = std::get_if<int64_t>(&attr)) {
    if (type->str().find("float") != std::string::npos) return static_cast<double>(*x);
    if (type->str().find("bool") != std::string::npos) return *x != 0;
    return *x;
  }
  if (const auto* x = std::get_if<double>(&attr)) {
    // A whole Scalar is an integer, as users write it: its type takes part in the result's.
    const bool scalar = type->str().find("Scalar") != std::string::npos ||
                        type->str().find("number") != std::string::npos;
    if (scalar && *x == std::floor(*x) && std::abs(*x) < 1e9) return static_cast<int64_t>(*x);
    return *x;
  }
  if (const auto* x = std::get_if<std::string>(&attr)) return *x;
  if (const auto* x = std::get_if<DType>(&attr)) return scalar_type_of(*x);
  if (const auto* x = std::get_if<std::vector<int64_t>>(&attr)) {
    if (type->str().find("bool[]") != std::string::npos ||
        type->str().find("bool[") != std::string::npos) {
      c10::List<bool> flags;
      for (const int64_t value : *x) flags.push_back(value != 0);
      return flags;
    }
    return *x;
  }
  return std::get<std::vector<double>>(attr);
}

inline bool is_backward(const AtenSpelling& spelling) {
  return spelling.overload.find("backward") != std::string::npos;
}

// PyTorch calls these with dense tensors only, and misreads others. Autograd hands dense ones to
// backward kernels.
inline bool takes_dense_only(const AtenSpelling& spelling) {
  return is_backward(spelling) || spelling.overload == "_weight_norm_interface" ||
         spelling.overload.starts_with("_embedding_bag");
}

// One sample as a call of one overload. Empty where the sample cannot be spelled that way.
struct Call {
  c10::OperatorHandle op;
  torch::jit::Stack arguments;
};

inline std::optional<c10::OperatorHandle> operator_of(const AtenSpelling& spelling) {
  const size_t dot = spelling.overload.find('.');
  const bool aten = spelling.overload.find("::") == std::string::npos;
  const auto found = c10::Dispatcher::singleton().findSchema(
      {(aten ? "aten::" : "") + spelling.overload.substr(0, dot),
       dot == std::string::npos ? "" : spelling.overload.substr(dot + 1)});
  return found ? std::optional(*found) : std::nullopt;
}

// Those that this version of PyTorch has.
inline std::vector<std::reference_wrapper<const AtenSpelling>> spellings_here(const OpDef& row) {
  std::vector<std::reference_wrapper<const AtenSpelling>> here;
  for (const AtenSpelling& spelling : row.aten) {
    if (operator_of(spelling)) here.emplace_back(spelling);
  }
  return here;
}

inline std::optional<Call> spelled(const OpDef& row, const AtenSpelling& spelling,
                                   const Sample& sample, Layout layout, const Tweak& tweak = {}) {
  Call call{operator_of(spelling).value(), {}};
  const ParsedSpelling& parts = parsed(spelling);
  for (const auto& attribute : parts.attributes) {
    if (!attribute.fixed) continue;
    const Attr* wanted = sample.attrs.find(attribute.name);
    const AttrSpec* spec = nullptr;
    for (const AttrSpec& candidate : row.attrs) {
      if (candidate.name == attribute.name) spec = &candidate;
    }
    const Attr fixed = fixed_value(*attribute.fixed, spec->type);
    const Attr* value = wanted ? wanted : spec->fallback ? &*spec->fallback : nullptr;
    if (!value || !equal(*value, fixed)) return std::nullopt;
  }
  const auto specs = operand_specs(row);
  const AtenFacts& facts = facts_of(spelling.overload);
  for (const auto& argument : call.op.schema().arguments()) {
    const auto at =
        std::find_if(parts.operands.begin(), parts.operands.end(), [&](const std::string& name) {
          return name == argument.name() || later_name(facts, name) == argument.name();
        });
    if (at != parts.operands.end()) {
      const auto index = static_cast<size_t>(at - parts.operands.begin());
      const std::string type = argument.type()->str();
      if (index < specs.size() && specs[index].list) {
        if (type == "Tensor[]") {
          std::vector<at::Tensor> list;
          for (size_t i = index; i < sample.operands.size(); ++i) {
            list.push_back(drawn(sample, i, layout, tweak));
          }
          call.arguments.push_back(list);
        } else {
          c10::List<compat::optional<at::Tensor>> list;
          for (size_t i = index; i < sample.operands.size(); ++i) {
            if (sample.operands[i].present) {
              list.push_back(drawn(sample, i, layout, tweak));
            } else {
              list.push_back(compat::optional<at::Tensor>());
            }
          }
          call.arguments.push_back(list);
        }
        continue;
      }
      const bool present = index < sample.operands.size() && sample.operands[index].present;
      if (!present) {
        if (type == "Tensor") return std::nullopt;
        call.arguments.push_back(c10::IValue());
        continue;
      }
      at::Tensor values = drawn(sample, index, layout, tweak);
      if (type == "Tensor" || type == "Tensor?") {
        call.arguments.push_back(values);
      } else {
        if (values.dim() != 0) return std::nullopt;
        call.arguments.push_back(values.item());
      }
      continue;
    }
    const auto attribute =
        std::find_if(parts.attributes.begin(), parts.attributes.end(),
                     [&](const auto& a) { return a.argument == argument.name(); });
    if (attribute != parts.attributes.end()) {
      if (const Attr* value = sample.attrs.find(attribute->name)) {
        const auto* list = std::get_if<std::vector<int64_t>>(value);
        if (list && (argument.type()->str() == "int" || argument.type()->str() == "int?")) {
          if (list->size() != 1) return std::nullopt;
          call.arguments.push_back(list->front());
          continue;
        }
        call.arguments.push_back(as_argument(*value, argument.type()));
        continue;
      }
    }
    if (!argument.default_value()) {
      if (attribute == parts.attributes.end()) return std::nullopt;
      const auto spec = std::find_if(row.attrs.begin(), row.attrs.end(),
                                     [&](const auto& s) { return s.name == attribute->name; });
      if (spec != row.attrs.end() && spec->fallback) {
        call.arguments.push_back(as_argument(*spec->fallback, argument.type()));
      } else if (argument.type()->kind() == c10::TypeKind::OptionalType) {
        call.arguments.push_back(c10::IValue());
      } else if (spec != row.attrs.end() && spec->type == AttrType::dtype) {
        call.arguments.push_back(at::kFloat);
      } else {
        return std::nullopt;
      }
      continue;
    }
    call.arguments.push_back(*argument.default_value());
  }
  return call;
}

// The call's tensors in order, those in lists too: `use` may replace each.
template <typename Use>
void for_each_tensor(torch::jit::Stack& arguments, const Use& use) {
  for (c10::IValue& argument : arguments) {
    if (argument.isTensor()) {
      at::Tensor tensor = argument.toTensor();
      use(tensor);
      argument = tensor;
    } else if (argument.isTensorList()) {
      std::vector<at::Tensor> list = argument.toTensorVector();
      for (at::Tensor& tensor : list) use(tensor);
      argument = list;
    } else if (argument.isOptionalTensorList()) {
      c10::List<compat::optional<at::Tensor>> list = argument.toOptionalTensorList().copy();
      for (size_t i = 0; i < list.size(); ++i) {
        compat::optional<at::Tensor> tensor = list.get(i);
        if (!tensor) continue;
        use(*tensor);
        list.set(i, tensor);
      }
      argument = list;
    }
  }
}

inline std::vector<at::Tensor> tensors_of(const Call& call) {
  torch::jit::Stack arguments = call.arguments;
  std::vector<at::Tensor> tensors;
  for_each_tensor(arguments, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

inline std::vector<at::Tensor> invoke(const Call& call, const std::vector<at::Tensor>& tensors) {
  torch::jit::Stack stack = call.arguments;
  size_t next = 0;
  for_each_tensor(stack, [&](at::Tensor& tensor) { tensor = tensors[next++]; });
  call.op.callBoxed(&stack);
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : stack) {
    if (value.isTensor() && value.toTensor().defined()) results.push_back(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) results.push_back(tensor);
    }
  }
  return results;
}

// A scalar that depends on every result differently, so that every gradient matters.
inline at::Tensor mixture(const std::vector<at::Tensor>& results) {
  at::Tensor sum;
  for (const at::Tensor& result : results) {
    if (!result.is_floating_point() || !result.requires_grad() || result.numel() == 0) continue;
    // Exact in float32, so that only the operator rounds.
    const at::Tensor weights =
        ((at::arange(result.numel(), at::kFloat) % 7) * 0.25 - 0.625).reshape(result.sizes());
    const at::Tensor part = (result * weights).sum();
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

}  // namespace tessera
