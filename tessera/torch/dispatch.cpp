#include "tessera/torch/dispatch.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <atomic>

#include "tessera/base/error.h"
#include "tessera/torch/aten_call.h"
#include "tessera/torch/aten_facts.h"
#include "tessera/torch/attention.h"
#include "tessera/torch/compat.h"
#include "tessera/torch/ctc.h"
#include "tessera/torch/recurrent.h"
#include "tessera/torch/static_forms.h"

namespace tessera {
namespace {

const c10::DispatchKeySet capture_keys({compat::below_autograd, compat::above_autograd});

// Not thread_local: deeply nested backward passes hop to autograd's own threads, which carry the
// thread-local dispatch keys over but not our variables.
std::atomic<Recorder*> current{nullptr};

void record_call(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const NotRecorded quiet;
  compat::let_exceptions_pass_torchscript(false);  // the last one, if any, has passed
  guard_errors([&] {
    Recorder* recorder = current.load();
    TESSERA_INVARIANT(recorder, "a call arrived although nothing is being captured");
    recorder->record(op, *stack);
  });
}

void mark_loss(const at::Tensor& loss) {
  const NotRecorded quiet;
  guard_errors([&] {
    if (Recorder* recorder = current.load()) recorder->mark_loss(loss);
  });
}

// A layer whose weights may have another floating-point type than its input.
void call_layer(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard once(compat::above_autograd);
  const auto& arguments = op.schema().arguments();
  const AtenFacts& facts = facts_of(c10::toString(op.operator_name()));
  const auto given = torch::jit::last(*stack, arguments.size());
  const auto is_tensor_of_layer = [&](size_t i) {
    if (i > 0 && !is_named(facts.weights, arguments[i].name())) return false;
    return given[i].isTensor() && given[i].toTensor().defined() &&
           given[i].toTensor().is_floating_point();
  };
  const at::ScalarType own = given[0].toTensor().scalar_type();
  at::ScalarType inside = own;
  bool mixed = false;
  for (size_t i = 0; i < arguments.size() && c10::isFloatingType(own); ++i) {
    if (!is_tensor_of_layer(i)) continue;
    const at::ScalarType type = given[i].toTensor().scalar_type();
    mixed = mixed || type != own;
    if (facts.promotes_inside) inside = c10::promoteTypes(inside, type);
  }
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size() && mixed; ++i) {
    if (is_tensor_of_layer(i)) (*stack)[first + i] = given[i].toTensor().to(inside);
  }
  op.callBoxed(stack);
  if (mixed) stack->back() = stack->back().toTensor().to(own);
}

// A loss computes as always and marks its result.
void call_loss(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  call_layer(op, stack);
  mark_loss(stack->back().toTensor());
}

// In C++ the "batchmean" of PyTorch's kl_div is a sum, divided by the batch outside of the
// operator: the quotient is the loss.
void call_kl_div(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::Tensor input = torch::jit::peek(*stack, 0, 4).toTensor();
  const bool sum = torch::jit::peek(*stack, 2, 4).toInt() == at::Reduction::Sum;
  call_loss(op, stack);
  Recorder* recorder = current.load();
  if (recorder && sum && input.dim() > 0) recorder->expect_batch_mean(input.size(0));
}

at::Tensor divide(const at::Tensor& self, const at::Scalar& other) {
  const c10::impl::ExcludeDispatchKeyGuard once(compat::above_autograd);
  at::Tensor quotient = at::div(self, other);
  Recorder* recorder = current.load();
  if (recorder && recorder->makes_batch_mean(self, other)) mark_loss(quotient);
  return quotient;
}

// Calls a static form instead of the operator. What it calls in turn is not looked at again.
template <auto form>
struct Instead;
template <typename Result, typename... Args, Result (*form)(Args...)>
struct Instead<form> {
  static Result call(Args... args) {
    const c10::impl::ExcludeDispatchKeyGuard once(compat::above_autograd);
    return guard_errors([&]() -> Result { return form(args...); });
  }
  static at::Tensor call_loss(Args... args) {
    at::Tensor loss = call(args...);
    mark_loss(loss);
    return loss;
  }
};

// By the names of its arguments: later versions have more of them.
void call_attention(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard once(compat::above_autograd);
  const at::Tensor result = guard_errors([&] {
    const AtenCall call(op, *stack);
    static_forms::Attention given{call.tensor("query"), call.tensor("key"), call.tensor("value"),
                                  call.tensor("attn_mask")};
    given.dropout = call.find("dropout_p")->toDouble();
    given.is_causal = call.find("is_causal")->toBool();
    const c10::IValue* scale = call.find("scale");
    if (scale && !scale->isNone()) given.scale = scale->toDouble();
    const c10::IValue* shares_heads = call.find("enable_gqa");
    given.shares_heads = shares_heads && shares_heads->toBool();
    return static_forms::attention(given);
  });
  torch::jit::drop(*stack, op.schema().arguments().size());
  stack->push_back(result);
}

at::Tensor identity_loss(const at::Tensor& x, int64_t reduction) {
  switch (reduction) {
    case 0:
      return x.sum();
    case 1:
      return x.mean();
    default:
      return x.clone();
  }
}

}  // namespace

Recording::Recording(Recorder& recorder) : include_(capture_keys) {
  TESSERA_INVARIANT(!current.exchange(&recorder), "two captures at the same time");
}

Recording::~Recording() {
  current = nullptr;
  compat::let_exceptions_pass_torchscript(false);
}

void throw_through_pytorch(std::exception_ptr error) {
  if (Recorder* recorder = current.load()) {
    compat::let_exceptions_pass_torchscript(true);
    recorder->front_end().throw_wrapped(error);
  }
  std::rethrow_exception(error);
}

Recorder* current_recorder() { return current.load(); }

NotRecorded::NotRecorded() : exclude_(capture_keys) {}

}  // namespace tessera

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&tessera::record_call>());
}

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, DeferredInit, library) {
  for (const tessera::AtenFacts& row : tessera::aten_facts()) {
    if (row.caught_whole || !row.versions.include(tessera::compat::torch_version)) continue;
    const std::string name(row.name);
    if (row.loss) {
      library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&tessera::call_loss>());
    } else if (!row.weights.empty()) {
      library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&tessera::call_layer>());
    }
  }
  // The rows that are caught whole, with our forms of them.
  library.impl("kl_div", torch::CppFunction::makeFromBoxedFunction<&tessera::call_kl_div>());
  library.impl("div.Scalar", &tessera::divide);
  namespace forms = tessera::static_forms;
  library.impl("max", &tessera::Instead<&forms::max>::call);
  library.impl("min", &tessera::Instead<&forms::min>::call);
  library.impl("median", &tessera::Instead<&forms::median>::call);
  library.impl("nanmedian", &tessera::Instead<&forms::nanmedian>::call);
  library.impl("prod", &tessera::Instead<&forms::prod>::call);
  library.impl("prod.dim_int", &tessera::Instead<&forms::prod_along>::call);
  library.impl("cumprod", &tessera::Instead<&forms::cumprod>::call);
  library.impl("scatter_reduce.two", &tessera::Instead<&forms::scatter_reduce>::call);
  library.impl("index_reduce", &tessera::Instead<&forms::index_reduce>::call);
  library.impl("masked_fill.Tensor", &tessera::Instead<&forms::masked_fill>::call);
  library.impl("masked_fill_.Tensor", &tessera::Instead<&forms::masked_fill_>::call);
  library.impl("masked_scatter", &tessera::Instead<&forms::masked_scatter>::call);
  library.impl("masked_scatter_", &tessera::Instead<&forms::masked_scatter_>::call);
  library.impl("one_hot", &tessera::Instead<&forms::one_hot>::call);
  library.impl("_unique2", &tessera::Instead<&forms::unique>::call);
  library.impl("_pack_padded_sequence", &tessera::Instead<&forms::pack_padded_sequence>::call);
  library.impl("_nested_tensor_from_mask_left_aligned",
               &forms::nested_tensor_from_mask_left_aligned);
  library.impl("fused_moving_avg_obs_fake_quant",
               &tessera::Instead<&forms::fused_moving_avg_obs_fake_quant>::call);
  library.impl("binary_cross_entropy_with_logits",
               &tessera::Instead<&forms::binary_cross_entropy_with_logits>::call_loss);
  library.impl("cross_entropy_loss", &tessera::Instead<&forms::cross_entropy_loss>::call_loss);
  library.impl("ctc_loss.Tensor", &tessera::Instead<&forms::ctc_loss>::call_loss);
  library.impl("ctc_loss.IntList", &tessera::Instead<&forms::ctc_loss_of_known_lengths>::call_loss);
  library.impl("lstm.input", &tessera::Instead<&forms::lstm>::call);
  library.impl("gru.input", &tessera::Instead<&forms::gru>::call);
  library.impl("rnn_tanh.input", &tessera::Instead<&forms::rnn_tanh>::call);
  library.impl("rnn_relu.input", &tessera::Instead<&forms::rnn_relu>::call);
  if (tessera::facts_of("scaled_dot_product_attention").caught_whole) {  // of this version's
    library.impl("scaled_dot_product_attention",
                 torch::CppFunction::makeFromBoxedFunction<&tessera::call_attention>());
  }
}

TORCH_LIBRARY(poptorch, library) {
  library.def("identity_loss(Tensor x, int reduction) -> Tensor", &tessera::identity_loss);
}

TORCH_LIBRARY_IMPL(poptorch, DeferredInit, library) {
  library.impl("identity_loss", torch::CppFunction::makeFromBoxedFunction<&tessera::call_loss>());
}
