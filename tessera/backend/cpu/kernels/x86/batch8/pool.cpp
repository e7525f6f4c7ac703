// Max pooling over images in batch_layout, with the places of the maxima as they are in the plane.
#include <algorithm>
#include <array>
#include <limits>

#include "tessera/backend/cpu/kernels/x86/avx2.h"
#include "tessera/backend/cpu/kernels/x86/batch8/batch8.h"
#include "tessera/base/divided_up.h"
#include "tessera/base/error.h"

namespace tessera::cpu {
namespace {

// Of one dimension: the input positions of each window, `step` apart.
struct Windows {
  int64_t field = 0, places = 0, kernel = 0, stride = 0, padding = 0, dilation = 1;

  int64_t begin(int64_t place) const {
    const int64_t at = place * stride - padding;
    return at >= 0 ? at : at + rounded_up(-at, dilation);
  }
  int64_t end(int64_t place) const {
    return std::min(place * stride - padding + (kernel - 1) * dilation + 1, field);
  }
  bool are_pairs() const { return kernel == 2 && stride == 2 && padding == 0 && dilation == 1; }
  bool overlap() const { return dilation != 1 || stride < kernel; }
};

struct Pooling {
  Windows y, x;
  int64_t planes = 0;

  int64_t field() const { return y.field * x.field; }
  int64_t places() const { return y.places * x.places; }
  // Every window whole: ceil_mode may let one hang over the edge.
  bool pairs() const {
    return y.are_pairs() && x.are_pairs() && 2 * y.places <= y.field && 2 * x.places <= x.field;
  }
};

Pooling pooling_of(const Attrs& attrs, const Shape& field, const Shape& places) {
  const auto value = [&](std::string_view name, size_t d) {
    const auto& values = attrs.integers(name);
    return d == 0 ? values.front() : values.back();
  };
  const std::string_view stride = attrs.integers("stride").empty() ? "kernel_size" : "stride";
  const auto windows = [&](size_t d) {
    return Windows{field[2 + d],     places[2 + d],       value("kernel_size", d),
                   value(stride, d), value("padding", d), value("dilation", d)};
  };
  return {windows(0), windows(1), field[0] * field[1]};
}

// Calls work(plane) for every plane, some planes to a piece.
template <typename Work>
void for_each_plane(const Pooling& pooling, ThreadPool& pool, const Work& work) {
  constexpr int64_t piece_vectors = 2048;
  const int64_t grain = std::max<int64_t>(1, piece_vectors / pooling.field());
  pool.run_ranges(pooling.planes, grain, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) work(plane);
  });
}

struct Maximum {
  __m256 value;
  __m256i place;

  TESSERA_AVX2_INLINE void meet(__m256 other, int64_t at) {
    const __m256 larger = _mm256_or_ps(_mm256_cmp_ps(other, value, _CMP_GT_OQ),
                                       _mm256_cmp_ps(other, other, _CMP_UNORD_Q));
    value = _mm256_blendv_ps(value, other, larger);
    place = _mm256_blendv_epi8(place, _mm256_set1_epi32(static_cast<int>(at)),
                               _mm256_castps_si256(larger));
  }
};

TESSERA_AVX2 void pool_plane(const Pooling& p, const float* from, float* to, int32_t* indices) {
  for (int64_t i = 0; i < p.y.places; ++i) {
    for (int64_t j = 0; j < p.x.places; ++j, to += lanes, indices += lanes) {
      const int64_t first = p.y.begin(i) * p.x.field + p.x.begin(j);
      Maximum best{_mm256_set1_ps(-std::numeric_limits<float>::infinity()),
                   _mm256_set1_epi32(static_cast<int>(first))};
      for (int64_t y = p.y.begin(i); y < p.y.end(i); y += p.y.dilation) {
        for (int64_t x = p.x.begin(j); x < p.x.end(j); x += p.x.dilation) {
          const int64_t at = y * p.x.field + x;
          best.meet(_mm256_loadu_ps(from + at * lanes), at);
        }
      }
      _mm256_storeu_ps(to, best.value);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(indices), best.place);
    }
  }
}

TESSERA_AVX2 void pool_pairs(const Pooling& p, const float* from, float* to, int32_t* indices) {
  for (int64_t i = 0; i < p.y.places; ++i) {
    for (int64_t j = 0; j < p.x.places; ++j, to += lanes, indices += lanes) {
      const int64_t at = 2 * i * p.x.field + 2 * j;
      const float* window = from + at * lanes;
      const float* below = window + p.x.field * lanes;
      Maximum best{_mm256_loadu_ps(window), _mm256_set1_epi32(static_cast<int>(at))};
      best.meet(_mm256_loadu_ps(window + lanes), at + 1);
      best.meet(_mm256_loadu_ps(below), at + p.x.field);
      best.meet(_mm256_loadu_ps(below + lanes), at + p.x.field + 1);
      _mm256_storeu_ps(to, best.value);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(indices), best.place);
    }
  }
}

// Whether all maxima lay in their windows, as those of the pooling do.
TESSERA_AVX2 bool spread_in_windows(const Pooling& p, const float* grad, const int32_t* indices,
                                    float* to) {
  const bool overlap = p.y.overlap() || p.x.overlap();
  std::fill(to, to + p.field() * lanes, 0.0F);
  __m256i all = _mm256_set1_epi32(-1);
  for (int64_t i = 0; i < p.y.places; ++i) {
    for (int64_t j = 0; j < p.x.places; ++j, grad += lanes, indices += lanes) {
      const __m256 value = _mm256_loadu_ps(grad);
      const __m256i place = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(indices));
      __m256i found = _mm256_setzero_si256();
      for (int64_t y = p.y.begin(i); y < p.y.end(i); y += p.y.dilation) {
        for (int64_t x = p.x.begin(j); x < p.x.end(j); x += p.x.dilation) {
          const int64_t at = y * p.x.field + x;
          const __m256i here = _mm256_cmpeq_epi32(place, _mm256_set1_epi32(static_cast<int>(at)));
          const __m256 share = _mm256_and_ps(value, _mm256_castsi256_ps(here));
          float* target = to + at * lanes;
          _mm256_storeu_ps(target, overlap ? _mm256_add_ps(_mm256_loadu_ps(target), share) : share);
          found = _mm256_or_si256(found, here);
        }
      }
      all = _mm256_and_si256(all, found);
    }
  }
  return _mm256_movemask_epi8(all) == -1;
}

TESSERA_AVX2 bool spread_in_pairs(const Pooling& p, const float* grad, const int32_t* indices,
                                  float* to) {
  if (2 * p.y.places < p.y.field || 2 * p.x.places < p.x.field) {
    std::fill(to, to + p.field() * lanes, 0.0F);
  }
  __m256i all = _mm256_set1_epi32(-1);
  for (int64_t i = 0; i < p.y.places; ++i) {
    for (int64_t j = 0; j < p.x.places; ++j, grad += lanes, indices += lanes) {
      const int64_t first = 2 * i * p.x.field + 2 * j;
      const __m256 value = _mm256_loadu_ps(grad);
      const __m256i place = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(indices));
      __m256i found = _mm256_setzero_si256();
      for (const int64_t at : {first, first + 1, first + p.x.field, first + p.x.field + 1}) {
        const __m256i here = _mm256_cmpeq_epi32(place, _mm256_set1_epi32(static_cast<int>(at)));
        _mm256_storeu_ps(to + at * lanes, _mm256_and_ps(value, _mm256_castsi256_ps(here)));
        found = _mm256_or_si256(found, here);
      }
      all = _mm256_and_si256(all, found);
    }
  }
  return _mm256_movemask_epi8(all) == -1;
}

void spread_anywhere(const Pooling& p, const float* grad, const int32_t* indices, float* to) {
  std::fill(to, to + p.field() * lanes, 0.0F);
  for (int64_t i = 0; i < p.places() * lanes; ++i) {
    check(indices[i] >= 0 && indices[i] < p.field(),
          "max pooling: index {} is outside the {} elements of a plane", indices[i], p.field());
    to[indices[i] * lanes + i % lanes] += grad[i];
  }
}

class Batch8MaxPool : public PreparedKernel {
 public:
  explicit Batch8MaxPool(const Pooling& pooling) : pooling_(pooling) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    const auto pool_one = pooling_.pairs() ? pool_pairs : pool_plane;
    for_each_plane(pooling_, call.pool, [&](int64_t plane) {
      pool_one(pooling_, call.inputs[0].as<const float>() + plane * pooling_.field() * lanes,
               call.outputs[0].as<float>() + plane * pooling_.places() * lanes,
               call.outputs[1].as<int32_t>() + plane * pooling_.places() * lanes);
    });
  }

 private:
  Pooling pooling_;
};

class Batch8MaxPoolBackward : public PreparedKernel {
 public:
  explicit Batch8MaxPoolBackward(const Pooling& pooling) : pooling_(pooling) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    const auto spread = pooling_.pairs() ? spread_in_pairs : spread_in_windows;
    for_each_plane(pooling_, call.pool, [&](int64_t plane) {
      const auto* grad = call.inputs[0].as<const float>() + plane * pooling_.places() * lanes;
      const auto* indices = call.inputs[2].as<const int32_t>() + plane * pooling_.places() * lanes;
      auto* to = call.outputs[0].as<float>() + plane * pooling_.field() * lanes;
      if (!spread(pooling_, grad, indices, to)) {
        spread_anywhere(pooling_, grad, indices, to);
      }
    });
  }

 private:
  Pooling pooling_;
};

bool forward_applies(const KernelUse& use) {
  return is_batch8(use.inputs[0], 4) && is_batch8(use.outputs[0], 4) &&
         is_batch8(use.outputs[1], 4, DType::i32);
}

std::unique_ptr<PreparedKernel> prepare_forward(const KernelUse& use) {
  return std::make_unique<Batch8MaxPool>(
      pooling_of(use.attrs, use.inputs[0].geometry.shape, use.outputs[0].geometry.shape));
}

// The input itself is not read and may lie as it likes.
bool backward_applies(const KernelUse& use) {
  return is_batch8(use.inputs[0], 4) && is_batch8(use.inputs[2], 4, DType::i32) &&
         is_batch8(use.outputs[0], 4);
}

std::unique_ptr<PreparedKernel> prepare_backward(const KernelUse& use) {
  return std::make_unique<Batch8MaxPoolBackward>(
      pooling_of(use.attrs, use.outputs[0].geometry.shape, use.inputs[0].geometry.shape));
}

}  // namespace

std::span<const KernelEntry> batch8_pool_entries() {
  static constexpr KernelEntry entries[] = {
      {"max_pool2d_with_indices", "batch8", forward_applies, prepare_forward, nullptr, true},
      {"max_pool2d_with_indices_backward", "batch8", backward_applies, prepare_backward, nullptr,
       true},
  };
  return entries;
}

}  // namespace tessera::cpu
