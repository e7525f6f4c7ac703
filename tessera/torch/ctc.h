// The CTC loss by an operator of our own. PyTorch reads the lengths while it takes the loss apart;
// here they are operands like the labels, so that they may be inputs of the program. The arguments
// are those of aten::ctc_loss.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::static_forms {

at::Tensor ctc_loss(const at::Tensor& log_probs, const at::Tensor& targets,
                    const at::Tensor& input_lengths, const at::Tensor& target_lengths,
                    int64_t blank, int64_t reduction, bool zero_infinity);

at::Tensor ctc_loss_of_known_lengths(const at::Tensor& log_probs, const at::Tensor& targets,
                                     at::IntArrayRef input_lengths, at::IntArrayRef target_lengths,
                                     int64_t blank, int64_t reduction, bool zero_infinity);

}  // namespace tessera::static_forms
