#include "tessera/kernels/resample.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/scratch.h"
#include "tessera/kernels/copy.h"

namespace tessera::kernels {
namespace {

// The step between result positions in input positions, in float as PyTorch computes it.
float step_of(int64_t from, int64_t to, double scale) {
  return scale > 0 ? static_cast<float>(1.0 / scale)
                   : static_cast<float>(from) / static_cast<float>(to);
}

struct Planes {
  std::array<Taps, 3> taps;  // missing outer dimensions have one position
  std::array<int64_t, 3> whole{1, 1, 1};

  // `shape` is that of the tensor the taps point into.
  Planes(const ScratchVector<Taps>& given, std::span<const int64_t> shape) {
    const size_t dims = given.size();
    TESSERA_INVARIANT(dims >= 1 && dims <= 3, "resampling over {} dimensions", dims);
    for (size_t d = 0; d < 3; ++d) {
      const bool missing = d < 3 - dims;
      taps[d] = missing ? Taps{Tap{}} : given[d - (3 - dims)];
      if (!missing) whole[d] = shape[shape.size() - 3 + d];
    }
  }
  int64_t size() const { return whole[0] * whole[1] * whole[2]; }
  int64_t positions() const {
    return static_cast<int64_t>(taps[0].size() * taps[1].size() * taps[2].size());
  }

  // Calls visit(position, offset in the plane, weight) for everything a position reads.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    int64_t position = 0;
    for (const Tap& d : taps[0]) {
      for (const Tap& h : taps[1]) {
        for (const Tap& w : taps[2]) {
          for (size_t i = 0; i < d.count; ++i) {
            for (size_t j = 0; j < h.count; ++j) {
              const float outer = d.weight[i] * h.weight[j];
              const int64_t row = (d.at[i] * whole[1] + h.at[j]) * whole[2];
              for (size_t k = 0; k < w.count; ++k) {
                visit(position, row + w.at[k], outer * w.weight[k]);
              }
            }
          }
          ++position;
        }
      }
    }
  }
};

// The position that a place falls on, inside the input however far outside the place is: a factor
// may be anything above 0.
int64_t position_of(float place, int64_t from) {
  if (!(place > 0)) return 0;
  if (place >= static_cast<float>(from)) return from - 1;
  return std::min(static_cast<int64_t>(place), from - 1);
}

Tap single(int64_t at) { return {{at}, {1}, 1}; }

// The place in the input that a position of the result falls on.
float place_of(int64_t i, float step, bool align_corners) {
  const auto position = static_cast<float>(i);
  return align_corners ? step * position : step * (position + 0.5F) - 0.5F;
}

float step_between(int64_t from, int64_t to, double scale, bool align_corners) {
  if (!align_corners) return step_of(from, to, scale);
  return to > 1 ? static_cast<float>(from - 1) / static_cast<float>(to - 1) : 0.0F;
}

template <typename Position>
Taps padding_taps(int64_t from, int64_t before, int64_t after, const Position& position) {
  Taps taps;
  for (int64_t i = -before; i < from + after; ++i) taps.push_back(single(position(i)));
  return taps;
}

}  // namespace

Taps nearest_taps(int64_t from, int64_t to, double scale) {
  Taps taps;
  const float step = step_of(from, to, scale);
  for (int64_t i = 0; i < to; ++i) {
    taps.push_back(single(position_of(static_cast<float>(i) * step, from)));
  }
  return taps;
}

Taps nearest_centre_taps(int64_t from, int64_t to, double scale) {
  Taps taps;
  const float step = step_of(from, to, scale);
  for (int64_t i = 0; i < to; ++i) {
    taps.push_back(single(position_of((static_cast<float>(i) + 0.5F) * step, from)));
  }
  return taps;
}

Taps linear_taps(int64_t from, int64_t to, double scale, bool align_corners) {
  Taps taps;
  const float step = step_between(from, to, scale, align_corners);
  for (int64_t i = 0; i < to; ++i) {
    if (from == to) {  // PyTorch copies then, whatever the factor
      taps.push_back(single(i));
      continue;
    }
    const float inside = std::max(place_of(i, step, align_corners), 0.0F);
    const int64_t first = position_of(inside, from);
    const float weight = std::clamp(inside - static_cast<float>(first), 0.0F, 1.0F);
    taps.push_back({{first, std::min(first + 1, from - 1)}, {1 - weight, weight}, 2});
  }
  return taps;
}

Taps cubic_taps(int64_t from, int64_t to, double scale, bool align_corners) {
  constexpr float a = -0.75F;  // the slope that PyTorch takes
  const auto near = [](float x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [](float x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  Taps taps;
  const float step = step_between(from, to, scale, align_corners);
  for (int64_t i = 0; i < to; ++i) {
    const float place = place_of(i, step, align_corners);
    const float rounded = std::floor(place);
    const float t = place - rounded;
    // Four elements beyond an end all four reads are of the end itself.
    int64_t below = -4;
    if (rounded > -4) below = position_of(rounded + 4, from + 8) - 4;
    Tap tap;
    tap.count = 4;
    tap.weight = {far(t + 1), near(t), near(1 - t), far(2 - t)};
    for (size_t k = 0; k < 4; ++k) {
      const int64_t at = below - 1 + static_cast<int64_t>(k);
      tap.at[k] = std::clamp<int64_t>(at, 0, from - 1);
    }
    taps.push_back(tap);
  }
  return taps;
}

Taps reflecting_taps(int64_t from, int64_t before, int64_t after) {
  return padding_taps(from, before, after, [from](int64_t i) {
    if (i < 0) return -i;
    return i < from ? i : 2 * (from - 1) - i;
  });
}

Taps replicating_taps(int64_t from, int64_t before, int64_t after) {
  return padding_taps(from, before, after,
                      [from](int64_t i) { return std::clamp<int64_t>(i, 0, from - 1); });
}

void resample(const TensorView& x, const ScratchVector<Taps>& taps, const TensorView& out,
              ThreadPool& pool) {
  if (out.numel() == 0) return;
  const Dense source(x, pool);
  const Planes planes(taps, x.sizes);
  const int64_t grain = std::max<int64_t>(1, 4096 / planes.positions());
  pool.run_ranges(out.numel() / planes.positions(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const float* from = source.as<float>() + plane * planes.size();
      float* to = out.as<float>() + plane * planes.positions();
      std::fill(to, to + planes.positions(), 0.0F);
      planes.for_each([&](int64_t position, int64_t offset, float weight) {
        to[position] += weight * from[offset];
      });
    }
  });
}

void resample_backward(const TensorView& grad, const ScratchVector<Taps>& taps,
                       const TensorView& out, ThreadPool& pool) {
  if (out.numel() == 0) return;
  const Dense source(grad, pool);
  const Planes planes(taps, out.sizes);
  const int64_t grain = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, planes.positions()));
  pool.run_ranges(out.numel() / planes.size(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const float* from = source.as<float>() + plane * planes.positions();
      float* to = out.as<float>() + plane * planes.size();
      std::fill(to, to + planes.size(), 0.0F);
      planes.for_each([&](int64_t position, int64_t offset, float weight) {
        to[offset] += weight * from[position];
      });
    }
  });
}

}  // namespace tessera::kernels
