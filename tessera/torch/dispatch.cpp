#include "tessera/torch/dispatch.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <atomic>

#include "tessera/base/error.h"

namespace tessera {
namespace {

const c10::DispatchKeySet capture_keys({c10::DispatchKey::Fake, c10::DispatchKey::DeferredInit});

// Not thread_local: deeply nested backward passes hop to autograd's own threads, which carry the
// thread-local dispatch keys over but not our variables.
std::atomic<Recorder*> current{nullptr};

void record_call(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const NotRecorded quiet;
  Recorder* recorder = current.load();
  TESSERA_INVARIANT(recorder, "a call arrived although nothing is being captured");
  recorder->record(op, *stack);
}

// A loss computes as always and marks its result.
void call_loss(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  {
    const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKey::DeferredInit);
    op.callBoxed(stack);
  }
  const NotRecorded quiet;
  if (Recorder* recorder = current.load()) recorder->mark_loss(stack->back().toTensor());
}

// PyTorch's own derivative of max() and min() looks at a value; amax and amin share the gradient
// among equal elements in the same way without looking.
at::Tensor max_of_all(const at::Tensor& self) {
  const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKey::DeferredInit);
  return self.amax();
}

at::Tensor min_of_all(const at::Tensor& self) {
  const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKey::DeferredInit);
  return self.amin();
}

// PyTorch takes one_hot apart by looking at the smallest and largest class.
at::Tensor one_hot(const at::Tensor& classes, int64_t count) {
  const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKey::DeferredInit);
  check(count > 0,
        "one_hot needs num_classes: the largest class is only known when the program runs");
  return classes.unsqueeze(-1).eq(at::arange(count, classes.options())).to(at::kLong);
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

// Spelled out: what PyTorch calls a loss is no property of its schema.
constexpr const char* losses[] = {"l1_loss",
                                  "mse_loss",
                                  "cross_entropy_loss",
                                  "nll_loss",
                                  "nll_loss_nd",
                                  "nll_loss2d",
                                  "binary_cross_entropy",
                                  "binary_cross_entropy_with_logits",
                                  "kl_div",
                                  "poisson_nll_loss",
                                  "hinge_embedding_loss",
                                  "smooth_l1_loss",
                                  "huber_loss",
                                  "soft_margin_loss",
                                  "cosine_embedding_loss",
                                  "margin_ranking_loss",
                                  "triplet_margin_loss",
                                  "multi_margin_loss",
                                  "multilabel_margin_loss",
                                  "ctc_loss.IntList",
                                  "ctc_loss.Tensor"};

}  // namespace

Recording::Recording(Recorder& recorder) : include_(capture_keys) {
  TESSERA_INVARIANT(!current.exchange(&recorder), "two captures at the same time");
}

Recording::~Recording() { current = nullptr; }

NotRecorded::NotRecorded() : exclude_(capture_keys) {}

}  // namespace tessera

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&tessera::record_call>());
}

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, DeferredInit, library) {
  for (const char* loss : tessera::losses) {
    library.impl(loss, torch::CppFunction::makeFromBoxedFunction<&tessera::call_loss>());
  }
  library.impl("max", TORCH_FN(tessera::max_of_all));
  library.impl("min", TORCH_FN(tessera::min_of_all));
  library.impl("one_hot", TORCH_FN(tessera::one_hot));
}

TORCH_LIBRARY(poptorch, library) {
  library.def("identity_loss(Tensor x, int reduction) -> Tensor", &tessera::identity_loss);
}

TORCH_LIBRARY_IMPL(poptorch, DeferredInit, library) {
  library.impl("identity_loss", torch::CppFunction::makeFromBoxedFunction<&tessera::call_loss>());
}
