// Convolutions over one to three spatial dimensions and their gradients, in float32, as products
// whose patches are packed straight from the tensors. Sums run over the elements of the kernel in
// row-major order, at each of them over the channels (a run of partials.h); those of a weight's
// gradient over the places of all images.
#pragma once

#include <cstdint>

#include "tessera/base/scratch.h"
#include "tessera/base/tensor_view.h"
#include "tessera/base/thread_pool.h"
#include "tessera/kernels/partials.h"

namespace tessera::kernels {

struct ConvParams {
  ScratchVector<int64_t> stride, padding, dilation;  // one for each spatial dimension
  int64_t groups = 1;
};

// The number of places a window has: 0 or less where it does not fit.
inline int64_t conv_output_size(int64_t input, int64_t kernel, int64_t stride, int64_t padding,
                                int64_t dilation) {
  const int64_t room = input + 2 * padding - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

// input [batch, in, field...], weight [out, in / groups, kernel...], bias [out] or not present,
// out [batch, out, places...].
void conv(const TensorView& input, const TensorView& weight, const TensorView& bias,
          const ConvParams& params, const TensorView& out, ThreadPool& pool,
          const Partials& partials = {});

// The gradient by the input: what conv reads at a place, summed over all it is used for.
void conv_input_grad(const TensorView& grad, const TensorView& weight, const ConvParams& params,
                     const TensorView& out, ThreadPool& pool, const Partials& partials = {});

// The gradient by the weight.
void conv_weight_grad(const TensorView& grad, const TensorView& input, const ConvParams& params,
                      const TensorView& out, ThreadPool& pool, const Partials& partials = {});

}  // namespace tessera::kernels
