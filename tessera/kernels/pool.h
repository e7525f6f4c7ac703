// Pooling over windows of one to three trailing dimensions, in float32. The dimensions before them
// are planes that do not touch each other.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "tessera/base/scratch.h"
#include "tessera/base/tensor_view.h"
#include "tessera/base/thread_pool.h"

namespace tessera::kernels {

struct PoolParams {
  ScratchVector<int64_t> kernel, stride, padding, dilation;  // one for each pooled dimension
  bool ceil_mode = false;
};

// PyTorch's size rule: with ceil_mode a last window may hang over the edge, but must begin inside
// the input or its left padding.
int64_t pool_output_size(int64_t input, int64_t kernel, int64_t stride, int64_t padding,
                         int64_t dilation, bool ceil_mode);

// The largest element of each window, NaN before all others, and its flat place in the plane (i32).
void max_pool(const TensorView& input, const PoolParams& params, const TensorView& out,
              const TensorView& indices, ThreadPool& pool);
// Windows as adaptive_windows() has them, one for each element of the result.
void adaptive_max_pool(const TensorView& input, int64_t pooled, const TensorView& out,
                       const TensorView& indices, ThreadPool& pool);
// Elements put back to the places they had, zeros elsewhere.
void max_unpool(const TensorView& input, const TensorView& indices, int64_t pooled,
                const TensorView& out, ThreadPool& pool);
// `pooled` is the number of trailing dimensions that make a plane.
void max_pool_backward(const TensorView& grad, const TensorView& indices, int64_t pooled,
                       const TensorView& out, ThreadPool& pool);

// Which elements each average is taken of, dimension by dimension, and what it is divided by.
struct AverageWindows {
  struct Span {
    int64_t begin, end;  // inside the input
    int64_t padded;      // size with padding
  };
  std::array<ScratchVector<Span>, 3> spans;  // outer ones are single where fewer are pooled
  bool count_padding = false;
  std::optional<int64_t> divisor;
};
AverageWindows average_windows(const PoolParams& params, std::span<const int64_t> input,
                               std::span<const int64_t> places);
AverageWindows adaptive_windows(std::span<const int64_t> input, std::span<const int64_t> places);

void avg_pool(const TensorView& input, const AverageWindows& windows, int64_t pooled,
              const TensorView& out, ThreadPool& pool);
void avg_pool_backward(const TensorView& grad, const AverageWindows& windows, int64_t pooled,
                       const TensorView& out, ThreadPool& pool);

}  // namespace tessera::kernels
