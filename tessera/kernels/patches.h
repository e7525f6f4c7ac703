// Images as columns of patches and back, for one window shape, in float32; and the sum of
// overlapping windows along one dimension.
#pragma once

#include <array>
#include <cstdint>

#include "tessera/base/tensor_view.h"
#include "tessera/base/thread_pool.h"

namespace tessera::kernels {

struct PatchParams {
  std::array<int64_t, 2> kernel, dilation, padding, stride;

  // How many windows fit each dimension of an image of that size; below 1 where none does.
  std::array<int64_t, 2> windows(std::array<int64_t, 2> image) const;
};

// [batch, channels, h, w] to [batch, channels * kernel elements, windows]; padding reads as 0.
void images_to_columns(const TensorView& images, const PatchParams& params,
                       const TensorView& columns, ThreadPool& pool);
// The reverse: elements that several patches hold are added up.
void columns_to_images(const TensorView& columns, const PatchParams& params,
                       const TensorView& images, ThreadPool& pool);

// The gradient of windows of `size` elements, `step` apart, along `dim`: the last dimension of
// `grad` goes along the window. Any float32 strides; `out` is dense.
void add_windows(const TensorView& grad, int64_t dim, int64_t step, const TensorView& out,
                 ThreadPool& pool);

}  // namespace tessera::kernels
