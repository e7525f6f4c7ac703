// Planes read at other positions: resizing, and padding with what the plane itself holds. A plane
// is the last one to three dimensions; float32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tessera/base/scratch.h"
#include "tessera/base/tensor_view.h"
#include "tessera/base/thread_pool.h"

namespace tessera::kernels {

// Where a position of the result reads along one dimension: a mix of up to four positions.
struct Tap {
  std::array<int64_t, 4> at{};
  std::array<float, 4> weight{1};
  size_t count = 1;
};
using Taps = ScratchVector<Tap>;

// Resizing from `from` to `to` positions. `scale` is the factor the user gave, or 0: then it
// follows from the sizes.
Taps nearest_taps(int64_t from, int64_t to, double scale);
// The same with pixels seen as areas: their centres are compared.
Taps nearest_centre_taps(int64_t from, int64_t to, double scale);
Taps linear_taps(int64_t from, int64_t to, double scale, bool align_corners);
Taps cubic_taps(int64_t from, int64_t to, double scale, bool align_corners);
// Padding; a negative size crops.
Taps reflecting_taps(int64_t from, int64_t before, int64_t after);
Taps replicating_taps(int64_t from, int64_t before, int64_t after);

// One list of taps for each of the last dimensions.
void resample(const TensorView& x, const ScratchVector<Taps>& taps, const TensorView& out,
              ThreadPool& pool);
void resample_backward(const TensorView& grad, const ScratchVector<Taps>& taps,
                       const TensorView& out, ThreadPool& pool);

}  // namespace tessera::kernels
