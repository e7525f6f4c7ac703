#include "tessera/kernels/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/divided_up.h"
#include "tessera/base/error.h"
#include "tessera/base/scratch.h"
#include "tessera/kernels/copy.h"

namespace tessera::kernels {
namespace {

using Extent = std::array<int64_t, 3>;

int64_t product(const Extent& e) { return e[0] * e[1] * e[2]; }

// The last `count` values as three numbers, missing outer ones filled in.
Extent last_three(std::span<const int64_t> values, int64_t count, int64_t missing) {
  TESSERA_INVARIANT(count >= 1 && count <= 3, "pooling over {} dimensions", count);
  Extent out{missing, missing, missing};
  const auto n = static_cast<size_t>(count);
  for (size_t i = 0; i < n; ++i) out[3 - n + i] = values[values.size() - n + i];
  return out;
}

// Calls work(plane) for every plane.
template <typename Work>
void for_each_plane(int64_t planes, int64_t plane_work, ThreadPool& pool, const Work& work) {
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, plane_work));
  pool.run_ranges(planes, grain, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) work(plane);
  });
}

struct Steps {
  int64_t begin, end;  // input positions of a window inside the input, `dilation` apart
};

using WindowSteps = std::array<ScratchVector<Steps>, 3>;

// The largest element of every window and its place in the plane.
void max_over_windows(const Dense& x, const Extent& field, const WindowSteps& steps,
                      const Extent& dilation, const TensorView& out, const TensorView& indices,
                      ThreadPool& pool) {
  Extent places;
  for (size_t d = 0; d < 3; ++d) places[d] = static_cast<int64_t>(steps[d].size());
  const int64_t planes = out.numel() / product(places);
  for_each_plane(planes, product(field) + product(places), pool, [&](int64_t plane) {
    const float* from = x.as<float>() + plane * product(field);
    float* to = out.as<float>() + plane * product(places);
    int32_t* to_index = indices.as<int32_t>() + plane * product(places);
    for (const Steps& d : steps[0]) {
      for (const Steps& h : steps[1]) {
        for (const Steps& w : steps[2]) {
          float best = -std::numeric_limits<float>::infinity();
          int64_t at = (d.begin * field[1] + h.begin) * field[2] + w.begin;
          for (int64_t i = d.begin; i < d.end; i += dilation[0]) {
            for (int64_t j = h.begin; j < h.end; j += dilation[1]) {
              const int64_t row = (i * field[1] + j) * field[2];
              for (int64_t k = w.begin; k < w.end; k += dilation[2]) {
                const float value = from[row + k];
                if (value > best || std::isnan(value)) {
                  best = value;
                  at = row + k;
                }
              }
            }
          }
          *to++ = best;
          *to_index++ = static_cast<int32_t>(at);
        }
      }
    }
  });
}

int64_t checked_place(int64_t index, int64_t plane_size) {
  check(index >= 0 && index < plane_size,
        "max pooling: index {} is outside the {} elements of a plane", index, plane_size);
  return index;
}

ScratchVector<Steps> window_steps(int64_t input, int64_t places, int64_t kernel, int64_t stride,
                                  int64_t padding, int64_t dilation) {
  ScratchVector<Steps> steps;
  for (int64_t place = 0; place < places; ++place) {
    int64_t begin = place * stride - padding;
    const int64_t end = std::min(begin + (kernel - 1) * dilation + 1, input);
    if (begin < 0) begin += rounded_up(-begin, dilation);
    steps.push_back({begin, end});
  }
  return steps;
}

double divisor_of(const AverageWindows& w, const AverageWindows::Span& d,
                  const AverageWindows::Span& h, const AverageWindows::Span& v) {
  if (w.divisor) return static_cast<double>(*w.divisor);
  if (w.count_padding) return static_cast<double>(d.padded * h.padded * v.padded);
  return static_cast<double>((d.end - d.begin) * (h.end - h.begin) * (v.end - v.begin));
}

bool is_empty(const AverageWindows::Span& s) { return s.begin >= s.end; }

Extent places_of(const AverageWindows& w) {
  return {static_cast<int64_t>(w.spans[0].size()), static_cast<int64_t>(w.spans[1].size()),
          static_cast<int64_t>(w.spans[2].size())};
}

}  // namespace

int64_t pool_output_size(int64_t input, int64_t kernel, int64_t stride, int64_t padding,
                         int64_t dilation, bool ceil_mode) {
  const int64_t room = input + 2 * padding - dilation * (kernel - 1) - 1;
  const int64_t rounded = room + (ceil_mode ? stride - 1 : 0);
  if (rounded < 0) return 0;
  int64_t places = rounded / stride + 1;
  if (ceil_mode && (places - 1) * stride >= input + padding) --places;
  return places;
}

void max_pool(const TensorView& input, const PoolParams& params, const TensorView& out,
              const TensorView& indices, ThreadPool& pool) {
  if (out.numel() == 0) return;
  const auto pooled = static_cast<int64_t>(params.kernel.size());
  const Dense x(input, pool);
  const Extent field = last_three(input.sizes, pooled, 1);
  const Extent places = last_three(out.sizes, pooled, 1);
  const Extent kernel = last_three(params.kernel, pooled, 1);
  const Extent stride = last_three(params.stride, pooled, 1);
  const Extent padding = last_three(params.padding, pooled, 0);
  const Extent dilation = last_three(params.dilation, pooled, 1);
  WindowSteps steps;
  for (size_t d = 0; d < 3; ++d) {
    steps[d] = window_steps(field[d], places[d], kernel[d], stride[d], padding[d], dilation[d]);
  }
  max_over_windows(x, field, steps, dilation, out, indices, pool);
}

void adaptive_max_pool(const TensorView& input, int64_t pooled, const TensorView& out,
                       const TensorView& indices, ThreadPool& pool) {
  if (out.numel() == 0) return;
  const Dense x(input, pool);
  const auto dims = static_cast<size_t>(pooled);
  const AverageWindows windows = adaptive_windows(input.sizes.last(dims), out.sizes.last(dims));
  WindowSteps steps;
  for (size_t d = 0; d < 3; ++d) {
    for (const auto& span : windows.spans[d]) steps[d].push_back({span.begin, span.end});
  }
  max_over_windows(x, last_three(input.sizes, pooled, 1), steps, {1, 1, 1}, out, indices, pool);
}

void max_unpool(const TensorView& input, const TensorView& indices, int64_t pooled,
                const TensorView& out, ThreadPool& pool) {
  if (out.numel() == 0) return;
  const Dense x(input, pool);
  const Dense at(indices, pool);
  const int64_t plane_size = product(last_three(out.sizes, pooled, 1));
  const int64_t places = product(last_three(input.sizes, pooled, 1));
  for_each_plane(out.numel() / plane_size, plane_size + places, pool, [&](int64_t plane) {
    float* to = out.as<float>() + plane * plane_size;
    std::fill(to, to + plane_size, 0.0F);
    for (int64_t i = plane * places; i < (plane + 1) * places; ++i) {
      to[checked_place(at.as<int32_t>()[i], plane_size)] = x.as<float>()[i];
    }
  });
}

void max_pool_backward(const TensorView& grad, const TensorView& indices, int64_t pooled,
                       const TensorView& out, ThreadPool& pool) {
  if (out.numel() == 0) return;
  const Dense g(grad, pool);
  const Dense at(indices, pool);
  const int64_t plane_size = product(last_three(out.sizes, pooled, 1));
  const int64_t places = product(last_three(grad.sizes, pooled, 1));
  for_each_plane(out.numel() / plane_size, plane_size + places, pool, [&](int64_t plane) {
    float* to = out.as<float>() + plane * plane_size;
    std::fill(to, to + plane_size, 0.0F);
    for (int64_t i = plane * places; i < (plane + 1) * places; ++i) {
      to[checked_place(at.as<int32_t>()[i], plane_size)] += g.as<float>()[i];
    }
  });
}

AverageWindows average_windows(const PoolParams& params, std::span<const int64_t> input,
                               std::span<const int64_t> places) {
  AverageWindows windows;
  const auto pooled = static_cast<int64_t>(params.kernel.size());
  const Extent field = last_three(input, pooled, 1);
  const Extent count = last_three(places, pooled, 1);
  const Extent kernel = last_three(params.kernel, pooled, 1);
  const Extent stride = last_three(params.stride, pooled, 1);
  const Extent padding = last_three(params.padding, pooled, 0);
  for (size_t d = 0; d < 3; ++d) {
    for (int64_t place = 0; place < count[d]; ++place) {
      const int64_t begin = place * stride[d] - padding[d];
      const int64_t end = std::min(begin + kernel[d], field[d] + padding[d]);
      windows.spans[d].push_back(
          {std::max<int64_t>(begin, 0), std::min(end, field[d]), end - begin});
    }
  }
  return windows;
}

AverageWindows adaptive_windows(std::span<const int64_t> input, std::span<const int64_t> places) {
  AverageWindows windows;
  const auto pooled = static_cast<int64_t>(places.size());
  const Extent field = last_three(input, pooled, 1);
  const Extent count = last_three(places, pooled, 1);
  for (size_t d = 0; d < 3; ++d) {
    for (int64_t place = 0; place < count[d]; ++place) {
      const int64_t begin = place * field[d] / count[d];
      const int64_t end = ((place + 1) * field[d] + count[d] - 1) / count[d];
      windows.spans[d].push_back({begin, end, end - begin});
    }
  }
  return windows;
}

void avg_pool(const TensorView& input, const AverageWindows& windows, int64_t pooled,
              const TensorView& out, ThreadPool& pool) {
  if (out.numel() == 0) return;
  const Dense x(input, pool);
  const Extent field = last_three(input.sizes, pooled, 1);
  const Extent places = places_of(windows);
  const int64_t planes = out.numel() / product(places);
  for_each_plane(planes, product(field) + product(places), pool, [&](int64_t plane) {
    const float* from = x.as<float>() + plane * product(field);
    float* to = out.as<float>() + plane * product(places);
    for (const auto& d : windows.spans[0]) {
      for (const auto& h : windows.spans[1]) {
        for (const auto& w : windows.spans[2]) {
          double sum = 0;
          for (int64_t i = d.begin; i < d.end; ++i) {
            for (int64_t j = h.begin; j < h.end; ++j) {
              const float* row = from + (i * field[1] + j) * field[2];
              for (int64_t k = w.begin; k < w.end; ++k) sum += row[k];
            }
          }
          const bool empty = is_empty(d) || is_empty(h) || is_empty(w);
          *to++ = empty ? 0.0F : static_cast<float>(sum / divisor_of(windows, d, h, w));
        }
      }
    }
  });
}

void avg_pool_backward(const TensorView& grad, const AverageWindows& windows, int64_t pooled,
                       const TensorView& out, ThreadPool& pool) {
  if (out.numel() == 0) return;
  const Dense g(grad, pool);
  const Extent field = last_three(out.sizes, pooled, 1);
  const Extent places = places_of(windows);
  const int64_t planes = out.numel() / product(field);
  for_each_plane(planes, product(field) + product(places), pool, [&](int64_t plane) {
    const float* from = g.as<float>() + plane * product(places);
    float* to = out.as<float>() + plane * product(field);
    std::fill(to, to + product(field), 0.0F);
    for (const auto& d : windows.spans[0]) {
      for (const auto& h : windows.spans[1]) {
        for (const auto& w : windows.spans[2]) {
          const auto divisor = static_cast<float>(divisor_of(windows, d, h, w));
          const float share = *from++ / divisor;
          for (int64_t i = d.begin; i < d.end; ++i) {
            for (int64_t j = h.begin; j < h.end; ++j) {
              float* row = to + (i * field[1] + j) * field[2];
              for (int64_t k = w.begin; k < w.end; ++k) row[k] += share;
            }
          }
        }
      }
    }
  });
}

}  // namespace tessera::kernels
