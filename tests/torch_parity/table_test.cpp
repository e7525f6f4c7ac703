// Walks the operator table: every ATen spelling of every row, forward and backward, through capture
// and the engine, against PyTorch's own kernels. Operators that PyTorch does not have run against
// their own reference kernels here; recurrent_test compares what is made of them.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <set>

#include "tessera/api/model.h"
#include "tessera/ops/aten_spelling.h"
#include "tessera/ops/registry.h"
#include "tessera/passes/add_optimizer.h"
#include "tessera/runtime/compile.h"
#include "tessera/runtime/session.h"
#include "tessera/torch/capture.h"
#include "tessera/torch/convert.h"

namespace tessera {
namespace {

enum class Layout { dense, transposed, stepped };

at::Tensor laid_out(const at::Tensor& values, Layout layout) {
  if (layout == Layout::transposed && values.dim() >= 2) {
    return values.transpose(0, -1).contiguous().transpose(0, -1);
  }
  if (layout == Layout::stepped && values.dim() >= 1 && values.numel() > 0) {
    auto sizes = values.sizes().vec();
    sizes.back() *= 2;
    at::Tensor wide = at::zeros(sizes, values.options());
    at::Tensor every_second = wide.slice(-1, 0, c10::nullopt, 2);
    every_second.copy_(values);
    return every_second;
  }
  return values;
}

at::Tensor drawn(const SampleOperand& operand, Layout layout) {
  const auto type = operand.type.dtype;
  // ATen's index types are 64 bits wide where graphs have 32.
  const auto scalar_type = type == DType::i32 ? at::kLong : scalar_type_of(type);
  at::Tensor values =
      at::rand(operand.type.shape, at::kDouble) * (operand.high - operand.low) + operand.low;
  if (type == DType::boolean) return laid_out(values > (operand.low + operand.high) / 2, layout);
  if (!is_floating(type)) values = values.floor();
  return laid_out(values.to(scalar_type), layout);
}

c10::IValue as_argument(const Attr& attr, const c10::TypePtr& type) {
  if (const auto* x = std::get_if<bool>(&attr)) return *x;
  if (const auto* x = std::get_if<int64_t>(&attr)) {
    if (type->str().find("float") != std::string::npos) return static_cast<double>(*x);
    if (type->str().find("bool") != std::string::npos) return *x != 0;
    return *x;
  }
  if (const auto* x = std::get_if<double>(&attr)) return *x;
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

// One sample as a call of one overload. Empty where the sample cannot be spelled that way.
struct Call {
  c10::OperatorHandle op;
  torch::jit::Stack arguments;
  std::vector<size_t> tensors;  // arguments that are tensors, in order
};

std::optional<Call> spelled(const OpDef& row, const AtenSpelling& spelling, const Sample& sample,
                            Layout layout) {
  const size_t dot = spelling.overload.find('.');
  const bool aten = spelling.overload.find("::") == std::string::npos;
  const std::string name = (aten ? "aten::" : "") + spelling.overload.substr(0, dot);
  const std::string overload = dot == std::string::npos ? "" : spelling.overload.substr(dot + 1);
  Call call{c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str()), {}, {}};
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
  for (const auto& argument : call.op.schema().arguments()) {
    const auto at = std::find(parts.operands.begin(), parts.operands.end(), argument.name());
    if (at != parts.operands.end()) {
      const auto index = static_cast<size_t>(at - parts.operands.begin());
      const std::string type = argument.type()->str();
      if (index < specs.size() && specs[index].list) {
        if (type == "Tensor[]") {
          std::vector<at::Tensor> list;
          for (size_t i = index; i < sample.operands.size(); ++i) {
            list.push_back(drawn(sample.operands[i], layout));
          }
          call.arguments.push_back(list);
        } else {
          c10::List<c10::optional<at::Tensor>> list;
          for (size_t i = index; i < sample.operands.size(); ++i) {
            if (sample.operands[i].present) {
              list.push_back(drawn(sample.operands[i], layout));
            } else {
              list.push_back(c10::optional<at::Tensor>());
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
      at::Tensor values = drawn(sample.operands[index], layout);
      if (type == "Tensor" || type == "Tensor?") {
        call.tensors.push_back(call.arguments.size());
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

std::vector<at::Tensor> invoke(const Call& call, const std::vector<at::Tensor>& tensors) {
  torch::jit::Stack stack = call.arguments;
  for (size_t i = 0; i < tensors.size(); ++i) stack[call.tensors[i]] = tensors[i];
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
at::Tensor mixture(const std::vector<at::Tensor>& results) {
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

std::vector<at::Tensor> run(Capture captured) {
  const auto executable = compile(std::move(captured.graph), {});
  Session session(executable, 2);
  for (size_t i = 0; i < captured.states.size(); ++i) {
    const auto type = scalar_type_of(executable->states()[i].type.dtype);
    const at::Tensor value = captured.states[i].host.detach().to(type).contiguous();
    session.write_state(i, {static_cast<std::byte*>(value.data_ptr()), value.nbytes()});
  }
  RunRequest request;
  std::vector<at::Tensor> results;
  for (const auto& output : executable->outputs()) {
    results.push_back(at::zeros(output.type.shape, scalar_type_of(output.type.dtype)));
    request.outputs.push_back(
        {static_cast<std::byte*>(results.back().data_ptr()), OutputMode::final_value, 1});
  }
  session.run(request);
  return results;
}

bool close(const at::Tensor& ours, const at::Tensor& theirs) {
  const at::Tensor a = ours.to(at::kDouble);
  const at::Tensor b = theirs.detach().to(at::kDouble);
  if (a.sizes() != b.sizes()) return false;
  if (b.numel() == 0) return true;
  const double scale = b.nan_to_num(0, 0, 0).abs().max().item<double>();
  return at::allclose(a, b, 2e-5, 2e-6 * std::max(scale, 0.05), /*equal_nan=*/true);
}

// Float32's own rounding may be larger than ours: then float64 decides.
bool as_close_as(const at::Tensor& ours, const at::Tensor& theirs,
                 const std::function<at::Tensor()>& exact) {
  return close(ours, theirs) || close(ours, exact());
}

std::vector<at::Tensor> in_double(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> wide;
  for (const at::Tensor& tensor : tensors) {
    wide.push_back(tensor.is_floating_point()
                       ? tensor.detach().to(at::kDouble).requires_grad_(tensor.requires_grad())
                       : tensor);
  }
  return wide;
}

// PyTorch's own derivatives of these look at values, which no static program can.
const std::set<std::string> derivative_needs_values = {"prod", "prod.dim_int",
                                                       "masked_fill.Tensor"};

// Leaves that require a gradient, for as many operands as PyTorch differentiates.
std::vector<at::Tensor> leaves_of(const Call& call, const AtenSpelling& spelling, Layout layout) {
  const bool differentiate = !spelling.overload.ends_with("_") &&
                             spelling.overload.find("backward") == std::string::npos &&
                             spelling.hidden_mutations.empty() &&
                             !derivative_needs_values.contains(spelling.overload);
  std::vector<at::Tensor> leaves;
  for (const size_t i : call.tensors) {
    // Running statistics and the like change in place: each side has its own.
    at::Tensor leaf = laid_out(call.arguments[i].toTensor().clone(), layout);
    if (differentiate && leaf.is_floating_point()) leaf.requires_grad_();
    leaves.push_back(leaf);
  }
  return leaves;
}

class Table : public testing::TestWithParam<const OpDef*> {};

TEST_P(Table, FollowsPyTorch) {
  const OpDef& row = *GetParam();
  if (row.traits.reads_random_state) {
    // Its numbers are its own; base/rng_test and the family's test look at their distribution.
    return;
  }
  int tried = 0;
  for (const AtenSpelling& spelling : row.aten) {
    for (size_t s = 0; s < row.samples.size(); ++s) {
      for (const Layout layout : {Layout::dense, Layout::transposed, Layout::stepped}) {
        // Autograd hands dense tensors to backward kernels; given others, PyTorch's misread them.
        if (layout != Layout::dense && spelling.overload.find("backward") != std::string::npos) {
          continue;
        }
        at::manual_seed(s + 1);
        const auto call = spelled(row, spelling, row.samples[s], layout);
        if (!call) continue;
        SCOPED_TRACE(
            fmt::format("{} sample {} layout {}", spelling.overload, s, static_cast<int>(layout)));
        std::vector<at::Tensor> inputs = leaves_of(*call, spelling, layout);
        std::vector<at::Tensor> theirs;
        try {
          theirs = invoke(*call, inputs);
        } catch (const c10::Error&) {
          // Not differentiable in every operand, or not made for this type or layout.
          for (size_t i = 1; i < inputs.size(); ++i) inputs[i] = inputs[i].detach();
          try {
            theirs = invoke(*call, inputs);
          } catch (const c10::Error&) {
            continue;
          }
        }
        ++tried;
        std::vector<NamedTensor> named;
        std::vector<at::Tensor> own = leaves_of(*call, spelling, layout);
        for (size_t i = 0; i < own.size(); ++i) {
          own[i] = own[i].detach().requires_grad_(inputs[i].requires_grad());
          named.push_back({fmt::format("x{}", i), own[i]});
        }
        CaptureRequest request;
        request.parameters = named;
        request.forward = [&](const std::vector<at::Tensor>&) { return invoke(*call, own); };
        Capture captured;
        std::vector<at::Tensor> ours;
        ASSERT_NO_THROW(captured = capture(request));
        const auto places = captured.outputs;
        ASSERT_NO_THROW(ours = run(std::move(captured)));
        ASSERT_EQ(places.size(), theirs.size());
        for (size_t i = 0; i < theirs.size(); ++i) {
          const at::Tensor mine = places[i].graph_output < 0
                                      ? places[i].constant
                                      : ours[static_cast<size_t>(places[i].graph_output)];
          const auto exact = [&] { return invoke(*call, in_double(own))[i]; };
          EXPECT_TRUE(as_close_as(mine, theirs[i], exact))
              << "result " << i << "\nours\n"
              << mine.flatten().slice(0, 0, 20) << "\nPyTorch\n"
              << theirs[i].flatten().slice(0, 0, 20);
        }

        const at::Tensor total = mixture(theirs);
        if (!total.defined()) continue;
        try {
          torch::autograd::backward({total}, {});
        } catch (const std::exception&) {
          continue;  // PyTorch has no derivative
        }
        request.training = true;
        request.forward = [&](const std::vector<at::Tensor>&) {
          identity_loss(mixture(invoke(*call, own)), LossReduction::none);
          return std::vector<at::Tensor>{};
        };
        ASSERT_NO_THROW(captured = capture(request));
        std::vector<std::string> names;
        for (const auto& output : captured.graph.outputs()) names.push_back(output.name);
        ASSERT_NO_THROW(ours = run(std::move(captured)));
        for (size_t i = 0; i < inputs.size(); ++i) {
          const auto at = std::find(names.begin(), names.end(), gradient_name(named[i].name));
          if (at == names.end()) {
            EXPECT_FALSE(inputs[i].grad().defined()) << "no gradient for operand " << i;
            continue;
          }
          const auto exact = [&] {
            const auto wide = in_double(own);
            torch::autograd::backward({mixture(invoke(*call, wide))}, {});
            return wide[i].grad();
          };
          const at::Tensor& mine = ours[static_cast<size_t>(at - names.begin())];
          EXPECT_TRUE(as_close_as(mine, inputs[i].grad(), exact))
              << "gradient of operand " << i << "\nours\n"
              << mine.flatten().slice(0, 0, 20) << "\nPyTorch\n"
              << inputs[i].grad().flatten().slice(0, 0, 20);
        }
      }
    }
  }
  EXPECT_TRUE(row.aten.empty() || tried > 0) << "no sample can be spelled in ATen";
}

INSTANTIATE_TEST_SUITE_P(Rows, Table, testing::ValuesIn(all_ops()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace tessera
