#include "tessera/torch/ctc.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/base/error.h"
#include "tessera/torch/own_operators.h"

namespace tessera::static_forms {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct CtcLoss : torch::autograd::Function<CtcLoss> {
  static Tensor forward(AutogradContext* context, const Tensor& log_probs, const Tensor& targets,
                        const Tensor& input_lengths, const Tensor& target_lengths, int64_t blank,
                        bool zero_infinity) {
    context->save_for_backward({log_probs, targets, input_lengths, target_lengths});
    context->saved_data["blank"] = blank;
    context->saved_data["zero_infinity"] = zero_infinity;
    return call_own("ctc_loss",
                    {log_probs, targets, input_lengths, target_lengths, blank, zero_infinity})[0];
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const auto own = call_own("ctc_loss_backward",
                              {grads[0], saved[0], saved[1], saved[2], saved[3],
                               context->saved_data["blank"], context->saved_data["zero_infinity"]});
    return differentiable_once({own[0], Tensor(), Tensor(), Tensor(), Tensor(), Tensor()},
                               "ctc_loss");
  }
};

}  // namespace

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank, int64_t reduction,
                bool zero_infinity) {
  check(at::isIntegralType(input_lengths.scalar_type(), false) &&
            at::isIntegralType(target_lengths.scalar_type(), false),
        ErrorKind::type, "ctc_loss: input_lengths and target_lengths must be integers");
  const bool batched = log_probs.dim() == 3;
  const Tensor lengths = target_lengths.reshape({-1}).to(at::kLong);
  Tensor loss =
      CtcLoss::apply(batched ? log_probs : log_probs.unsqueeze(1), targets,
                     input_lengths.reshape({-1}).to(at::kLong), lengths, blank, zero_infinity);
  if (reduction == at::Reduction::Mean) {
    return (loss / lengths.clamp_min(1).to(loss.scalar_type())).mean();
  }
  if (reduction == at::Reduction::Sum) return loss.sum();
  return batched ? loss : loss.squeeze(0);
}

Tensor ctc_loss_of_known_lengths(const Tensor& log_probs, const Tensor& targets,
                                 at::IntArrayRef input_lengths, at::IntArrayRef target_lengths,
                                 int64_t blank, int64_t reduction, bool zero_infinity) {
  return static_forms::ctc_loss(log_probs, targets, at::tensor(input_lengths),
                                at::tensor(target_lengths), blank, reduction, zero_infinity);
}

}  // namespace tessera::static_forms
