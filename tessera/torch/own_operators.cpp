#include "tessera/torch/own_operators.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "tessera/base/error.h"
#include "tessera/base/thread_pool.h"
#include "tessera/ops/builder.h"
#include "tessera/runtime/environment.h"
#include "tessera/torch/aten_call.h"
#include "tessera/torch/compat.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/dispatch.h"

namespace tessera {
namespace {

constexpr const char* schemas[] = {
    "lstm(Tensor projected, Tensor h0, Tensor c0, Tensor weight, Tensor? bias_ih, Tensor? bias_hh, "
    "bool reverse) -> (Tensor output, Tensor hn, Tensor cn, Tensor cells, Tensor gates)",
    "lstm_backward(Tensor? grad_output, Tensor? grad_hn, Tensor? grad_cn, Tensor c0, Tensor "
    "weight, "
    "Tensor cells, Tensor gates, bool reverse) -> (Tensor, Tensor, Tensor)",
    "gru(Tensor projected, Tensor h0, Tensor weight, Tensor? bias_ih, Tensor? bias_hh, "
    "bool reverse) -> (Tensor output, Tensor hn, Tensor gates)",
    "gru_backward(Tensor? grad_output, Tensor? grad_hn, Tensor h0, Tensor weight, Tensor output, "
    "Tensor gates, bool reverse) -> (Tensor, Tensor, Tensor)",
    "rnn(Tensor projected, Tensor h0, Tensor weight, Tensor? bias_ih, Tensor? bias_hh, bool relu, "
    "bool reverse) -> (Tensor output, Tensor hn)",
    "rnn_backward(Tensor? grad_output, Tensor? grad_hn, Tensor weight, Tensor output, bool relu, "
    "bool reverse) -> (Tensor, Tensor)",
    "ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, "
    "int blank, bool zero_infinity) -> Tensor",
    "require(Tensor self, float? low, float? high, str too_low, str too_high) -> Tensor",
    "unique(Tensor self, int count) -> (Tensor values, Tensor inverse, Tensor counts)",
    "ctc_loss_backward(Tensor grad_loss, Tensor log_probs, Tensor targets, Tensor input_lengths, "
    "Tensor target_lengths, int blank, bool zero_infinity) -> Tensor",
};

// A tensor as kernels see it.
struct HostOperand {
  at::Tensor tensor;
  Shape shape;
  Strides strides;

  explicit HostOperand(const at::Tensor& given) {
    if (!given.defined()) return;
    tensor = given.to(scalar_type_of(narrowed(dtype_of(given.scalar_type()))));
    shape = shape_of(tensor);
    strides = tensor.strides().vec();
  }
  TensorView view() const {
    if (!tensor.defined()) return {nullptr, DType::f32, {}, {}, false};
    return {static_cast<std::byte*>(tensor.data_ptr()), dtype_of(tensor.scalar_type()), shape,
            strides, true};
  }
};

// The operand over which an element-wise row may write a result, and whose type and strides the
// result therefore has; undefined where there is none.
at::Tensor operand_in_place(const MatchedCall& matched, size_t result) {
  for (const auto& [into, operand] : matched.op->traits.in_place) {
    if (into == result && matched.op->kind == Kind::elementwise) {
      return matched.operands[operand].tensor;
    }
  }
  return {};
}

void run_row(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const AtenCall call(op, *stack);
  const auto matched = match(call);
  TESSERA_INVARIANT(matched, "no row is spelled {}", call.overload());
  std::vector<HostOperand> operands, results;
  std::vector<std::optional<TensorType>> types;
  for (const CallOperand& operand : matched->operands) {
    operands.emplace_back(operand.tensor);
    types.push_back(operand.tensor.defined() ? std::optional(type_of(operand.tensor))
                                             : std::nullopt);
  }
  const std::vector<TensorType> result_types = infer(*matched->op, types, matched->attrs);
  for (const TensorType& type : result_types) {
    results.emplace_back(at::empty(type.shape, scalar_type_of(type.dtype)));
  }
  std::vector<TensorView> inputs, outputs;
  for (const HostOperand& operand : operands) inputs.push_back(operand.view());
  for (const HostOperand& result : results) outputs.push_back(result.view());
  ThreadPool pool(1, cpu_level_of_environment());
  matched->op->cpu({inputs, outputs, matched->attrs, pool, {}});
  std::vector<at::Tensor> returned;
  for (size_t i = 0; i < results.size(); ++i) {
    const at::Tensor like = operand_in_place(*matched, i);
    returned.push_back(like.defined()
                           ? at::empty_like(like).copy_(results[i].tensor)
                           : results[i].tensor.to(scalar_type_of(result_types[i].dtype)));
  }
  torch::jit::drop(*stack, call.count());
  for (at::Tensor& result : returned) stack->emplace_back(std::move(result));
}

// Values pass, and so do gradients.
struct Require : torch::autograd::Function<Require> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& self,
                            compat::optional<double> low, compat::optional<double> high,
                            const std::string& too_low, const std::string& too_high) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return call_own("require", {self, low, high, too_low, too_high})[0];
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& grads) {
    return {grads[0], at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor differentiable_require(const at::Tensor& self, compat::optional<double> low,
                                  compat::optional<double> high, compat::string_view too_low,
                                  compat::string_view too_high) {
  return Require::apply(self, low, high, std::string(too_low), std::string(too_high));
}

struct Refuse : torch::autograd::Function<Refuse> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& gradient,
                            const std::string& what) {
    context->saved_data["what"] = what;
    return gradient;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list&) {
    guard_errors([&] {
      fail(ErrorKind::user,
           "gradients of gradients of {} cannot be computed; build it from single tensor operators "
           "where they are needed",
           context->saved_data["what"].toStringRef());
    });
    return {};
  }
};

}  // namespace

std::vector<at::Tensor> call_own(const std::string& name, std::vector<c10::IValue> arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(("poptorch::" + name).c_str(), "");
  torch::jit::Stack stack = std::move(arguments);
  op.callBoxed(&stack);
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : stack) results.push_back(value.toTensor());
  return results;
}

std::vector<at::Tensor> differentiable_once(std::vector<at::Tensor> gradients,
                                            const std::string& what) {
  if (!at::GradMode::is_enabled()) return gradients;
  for (at::Tensor& gradient : gradients) {
    if (gradient.defined()) {
      gradient = Refuse::apply(gradient.detach().requires_grad_(), what);
    }
  }
  return gradients;
}

}  // namespace tessera

TORCH_LIBRARY_FRAGMENT(poptorch, library) {
  for (const char* schema : tessera::schemas) library.def(schema);
}

TORCH_LIBRARY_IMPL(poptorch, Autograd, library) {
  library.impl("require", &tessera::differentiable_require);
}

TORCH_LIBRARY_IMPL(poptorch, CPU, library) {
  for (const std::string schema : tessera::schemas) {
    library.impl(schema.substr(0, schema.find('(')).c_str(),
                 torch::CppFunction::makeFromBoxedFunction<&tessera::run_row>());
  }
}
