// Recurrent layers in float32: the walk through time of one layer in one direction. What the input
// gives to the gates comes in computed for all time steps (`projected`), and the gradients of the
// weights are left to the caller: both are ordinary products over all steps at once.
//
// Sequences are [time, batch, ...], states [batch, hidden], weights [gates * hidden, hidden] with
// PyTorch's order of gates. Optional tensors are looked at only where they are `present`. Rows of
// the batch do not meet: threads take some of them from the first step to the last.
#pragma once

#include "tessera/base/tensor_view.h"
#include "tessera/base/thread_pool.h"

namespace tessera::kernels {

// `reverse` walks from the last time step to the first.
struct Lstm {
  TensorView projected, h0, c0, weight, bias_ih, bias_hh;
  bool reverse = false;
  TensorView output, hn, cn;
  TensorView cells;  // of every step
  TensorView gates;  // input, forget, cell, output; may be the memory of `projected`
};
void lstm(const Lstm& layer, ThreadPool& pool);

struct LstmBackward {
  TensorView grad_output, grad_hn, grad_cn;  // optional
  TensorView c0, weight, cells, gates;
  bool reverse = false;
  TensorView grad_projected;  // may be the memory of `gates`
  TensorView grad_h0, grad_c0;
};
void lstm_backward(const LstmBackward& layer, ThreadPool& pool);

struct Gru {
  TensorView projected, h0, weight, bias_ih, bias_hh;
  bool reverse = false;
  TensorView output, hn;
  TensorView gates;  // reset, update, new, and what the state gave to new
};
void gru(const Gru& layer, ThreadPool& pool);

struct GruBackward {
  TensorView grad_output, grad_hn;  // optional
  TensorView h0, weight, output, gates;
  bool reverse = false;
  TensorView grad_projected, grad_hidden;  // of the gates' two summands
  TensorView grad_h0;
};
void gru_backward(const GruBackward& layer, ThreadPool& pool);

// The plain cell: the hyperbolic tangent, or relu.
struct Rnn {
  TensorView projected, h0, weight, bias_ih, bias_hh;
  bool relu = false, reverse = false;
  TensorView output;  // may be the memory of `projected`
  TensorView hn;
};
void rnn(const Rnn& layer, ThreadPool& pool);

struct RnnBackward {
  TensorView grad_output, grad_hn;  // optional
  TensorView weight, output;
  bool relu = false, reverse = false;
  TensorView grad_projected, grad_h0;
};
void rnn_backward(const RnnBackward& layer, ThreadPool& pool);

}  // namespace tessera::kernels
