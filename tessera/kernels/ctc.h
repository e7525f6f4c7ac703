// Connectionist temporal classification: the loss of sequences of class probabilities whose
// alignment with their labels is not known, and its gradient. Sums over alignments are kept as
// logarithms in double precision. Threads take samples of the batch.
#pragma once

#include "tessera/base/tensor_view.h"
#include "tessera/base/thread_pool.h"

namespace tessera::kernels {

struct Ctc {
  TensorView log_probs;       // [time, batch, classes], f32
  TensorView targets;         // labels: [batch, longest], or those of all samples in one row; i32
  TensorView input_lengths;   // [batch], i32
  TensorView target_lengths;  // [batch], i32
  int64_t blank = 0;
  bool zero_infinity = false;  // losses that are infinite count as 0, without gradient
};

// loss: [batch]. Infinite where a sequence is too short for its labels.
void ctc_loss(const Ctc& ctc, const TensorView& loss, ThreadPool& pool);

// As PyTorch does it: the gradient of what came into the log_softmax that made log_probs.
void ctc_loss_backward(const Ctc& ctc, const TensorView& grad_loss, const TensorView& grad,
                       ThreadPool& pool);

}  // namespace tessera::kernels
