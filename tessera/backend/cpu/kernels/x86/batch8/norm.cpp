// Group norm over images in batch_layout, its gradients, and sums over all but the channels. Every
// lane is an image with statistics of its own. Sums are in float over short stretches and in double
// over those, as exact as the reference for all that a float can show.
#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/backend/cpu/kernels/x86/avx2.h"
#include "tessera/backend/cpu/kernels/x86/batch8/batch8.h"
#include "tessera/backend/cpu/kernels/x86/row_sums.h"

namespace tessera::cpu {
namespace {

using Lanes = std::array<double, lanes>;

// A float for each lane.
struct alignas(32) LaneFloats {
  std::array<float, lanes> values;

  template <typename Value>
  explicit LaneFloats(const Value& value) {
    for (size_t i = 0; i < lanes; ++i) values[i] = static_cast<float>(value(i));
  }
  TESSERA_AVX2_INLINE __m256 load() const { return _mm256_load_ps(values.data()); }
};

// Adds up term(i) for i below count, lane by lane.
template <typename Term>
TESSERA_AVX2_INLINE void add_lanes(int64_t count, Lanes& sums, const Term& term) {
  constexpr int64_t stretch = 64;
  __m256d low = _mm256_loadu_pd(sums.data()), high = _mm256_loadu_pd(sums.data() + 4);
  for (int64_t begin = 0; begin < count; begin += stretch) {
    const int64_t end = std::min(count, begin + stretch);
    __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a;
    int64_t i = begin;
    for (; i + 4 <= end; i += 4) {
      a = term(i, a);
      b = term(i + 1, b);
      c = term(i + 2, c);
      d = term(i + 3, d);
    }
    for (; i < end; ++i) a = term(i, a);
    const __m256 sum = _mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d));
    low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(sum)));
    high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(sum, 1)));
  }
  _mm256_storeu_pd(sums.data(), low);
  _mm256_storeu_pd(sums.data() + 4, high);
}

TESSERA_AVX2 Lanes sum_of(const float* x, int64_t count) {
  Lanes sums{};
  add_lanes(count, sums, [x](int64_t i, __m256 sum) TESSERA_AVX2 {
    return _mm256_add_ps(sum, _mm256_loadu_ps(x + i * lanes));
  });
  return sums;
}

TESSERA_AVX2 Lanes sum_of_distances(const float* x, int64_t count, const LaneFloats& centers) {
  Lanes sums{};
  const __m256 center = centers.load();
  add_lanes(count, sums, [x, center](int64_t i, __m256 sum) TESSERA_AVX2 {
    return _mm256_add_ps(sum, _mm256_sub_ps(_mm256_loadu_ps(x + i * lanes), center));
  });
  return sums;
}

TESSERA_AVX2 Lanes sum_of_squares(const float* x, int64_t count, const LaneFloats& means) {
  Lanes sums{};
  const __m256 mean = means.load();
  add_lanes(count, sums, [x, mean](int64_t i, __m256 sum) TESSERA_AVX2 {
    const __m256 distance = _mm256_sub_ps(_mm256_loadu_ps(x + i * lanes), mean);
    return _mm256_fmadd_ps(distance, distance, sum);
  });
  return sums;
}

TESSERA_AVX2 Lanes sum_of_products(const float* a, const float* x, int64_t count,
                                   const LaneFloats& means) {
  Lanes sums{};
  const __m256 mean = means.load();
  add_lanes(count, sums, [a, x, mean](int64_t i, __m256 sum) TESSERA_AVX2 {
    const __m256 distance = _mm256_sub_ps(_mm256_loadu_ps(x + i * lanes), mean);
    return _mm256_fmadd_ps(_mm256_loadu_ps(a + i * lanes), distance, sum);
  });
  return sums;
}

struct Norm {
  int64_t batch, channels, groups, plane;
  double eps = 0;
  std::array<bool, 3> wanted = {true, true, true};

  Norm(const Attrs& attrs, const Shape& physical)
      : batch(physical[0]),
        channels(physical[1]),
        groups(attrs.integer("group")),
        plane(numel(physical) / (batch * channels * lanes)) {}

  int64_t members() const { return channels / groups; }
  double count() const { return static_cast<double>(members() * plane); }
  // Where the first lane's statistics of a group lie in the plain [N, group]; lanes are `groups`
  // apart.
  int64_t statistics(int64_t eight, int64_t group) const { return eight * lanes * groups + group; }
};

TESSERA_AVX2 void scale_and_shift(const float* x, int64_t count, const LaneFloats& centers,
                                  const LaneFloats& scales, float shift, float* to) {
  const __m256 center = centers.load(), scale = scales.load(), add = _mm256_set1_ps(shift);
  for (int64_t i = 0; i < count * lanes; i += lanes) {
    _mm256_storeu_ps(to + i,
                     _mm256_fmadd_ps(_mm256_sub_ps(_mm256_loadu_ps(x + i), center), scale, add));
  }
}

class Batch8GroupNorm : public PreparedKernel {
 public:
  explicit Batch8GroupNorm(const Norm& norm) : norm_(norm) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    call.pool.run(norm_.batch * norm_.groups, [&](int64_t piece) {
      run_group(call, piece / norm_.groups, piece % norm_.groups);
    });
  }

 private:
  void run_group(const KernelCall& call, int64_t eight, int64_t group) const {
    const int64_t size = norm_.members() * norm_.plane;
    const int64_t begin = (eight * norm_.channels + group * norm_.members()) * norm_.plane * lanes;
    const auto* x = call.inputs[0].as<const float>() + begin;
    auto* out = call.outputs[0].as<float>() + begin;
    const LaneFloats firsts([&](size_t i) { return avx2::origin_of_sums(x[i]); });
    const Lanes sums = sum_of_distances(x, size, firsts);
    const auto mean = [&](size_t i) { return firsts.values[i] + sums[i] / norm_.count(); };
    const LaneFloats means(mean);
    const Lanes squares = sum_of_squares(x, size, means);
    Lanes spreads;
    for (size_t i = 0; i < lanes; ++i) {
      // Around the mean as a float: what it was rounded by is taken off again.
      const double off = mean(i) - double{means.values[i]};
      spreads[i] = 1 / std::sqrt(squares[i] / norm_.count() - off * off + norm_.eps);
      const auto at = norm_.statistics(eight, group) + static_cast<int64_t>(i) * norm_.groups;
      call.outputs[1].as<float>()[at] = means.values[i];
      call.outputs[2].as<float>()[at] = static_cast<float>(spreads[i]);
    }
    for (int64_t member = 0; member < norm_.members(); ++member) {
      const int64_t channel = group * norm_.members() + member;
      const float weight = call.has_input(1) ? call.inputs[1].as<const float>()[channel] : 1.0F;
      const float bias = call.has_input(2) ? call.inputs[2].as<const float>()[channel] : 0.0F;
      const LaneFloats scales([&](size_t i) { return spreads[i] * weight; });
      const int64_t at = member * norm_.plane * lanes;
      scale_and_shift(x + at, norm_.plane, means, scales, bias, out + at);
    }
  }

  Norm norm_;
};

// (g * weight - grad_mean - (x - center) * slope) * rstd
struct Slopes {
  LaneFloats grad_mean, slope, center, rstd;
};

TESSERA_AVX2 void input_grad(const float* g, const float* x, int64_t count, const Slopes& slopes,
                             float weight, float* to) {
  const __m256 mean = slopes.grad_mean.load(), slope = slopes.slope.load();
  const __m256 center = slopes.center.load(), rstd = slopes.rstd.load();
  const __m256 w = _mm256_set1_ps(weight);
  for (int64_t i = 0; i < count * lanes; i += lanes) {
    const __m256 distance = _mm256_sub_ps(_mm256_loadu_ps(x + i), center);
    const __m256 own = _mm256_fmsub_ps(_mm256_loadu_ps(g + i), w, mean);
    _mm256_storeu_ps(to + i, _mm256_mul_ps(_mm256_fnmadd_ps(distance, slope, own), rstd));
  }
}

class Batch8GroupNormBackward : public PreparedKernel {
 public:
  explicit Batch8GroupNormBackward(const Norm& norm) : norm_(norm) {}

  // Of every plane: the sum of the gradient, and of the gradient times the normalised input.
  int64_t workspace_bytes() const override {
    return 2 * norm_.batch * norm_.channels * static_cast<int64_t>(sizeof(Lanes));
  }

  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    auto* sums = reinterpret_cast<Lanes*>(workspace.data());
    Lanes* dots = sums + norm_.batch * norm_.channels;
    call.pool.run(norm_.batch * norm_.groups, [&](int64_t piece) {
      run_group(call, piece / norm_.groups, piece % norm_.groups, sums, dots);
    });
    store_channels(sums, norm_.wanted[2], call.outputs[2].as<float>());
    store_channels(dots, norm_.wanted[1], call.outputs[1].as<float>());
    if (norm_.wanted[0]) return;
    std::fill_n(call.outputs[0].as<float>(), call.outputs[0].numel(), 0.0F);
  }

 private:
  void run_group(const KernelCall& call, int64_t eight, int64_t group, Lanes* sums,
                 Lanes* dots) const {
    const int64_t first = eight * norm_.channels + group * norm_.members();
    const auto* g = call.inputs[0].as<const float>();
    const auto* x = call.inputs[1].as<const float>();
    const auto statistic = [&](size_t operand) {
      const auto* from = call.inputs[operand].as<const float>() + norm_.statistics(eight, group);
      return LaneFloats([&](size_t i) { return from[static_cast<int64_t>(i) * norm_.groups]; });
    };
    const LaneFloats center = statistic(2), rstd = statistic(3);
    const auto weight_of = [&](int64_t plane) {
      return call.has_input(4) ? call.inputs[4].as<const float>()[plane % norm_.channels] : 1.0F;
    };
    Lanes weighted_sum{}, weighted_dot{};
    for (int64_t plane = first; plane < first + norm_.members(); ++plane) {
      const int64_t at = plane * norm_.plane * lanes;
      sums[plane] = sum_of(g + at, norm_.plane);
      dots[plane] = sum_of_products(g + at, x + at, norm_.plane, center);
      for (size_t i = 0; i < lanes; ++i) {
        dots[plane][i] *= rstd.values[i];
        weighted_sum[i] += weight_of(plane) * sums[plane][i];
        weighted_dot[i] += weight_of(plane) * dots[plane][i];
      }
    }
    if (!norm_.wanted[0]) return;
    const Slopes slopes{
        LaneFloats([&](size_t i) { return weighted_sum[i] / norm_.count(); }),
        LaneFloats([&](size_t i) { return weighted_dot[i] * rstd.values[i] / norm_.count(); }),
        center, rstd};
    for (int64_t plane = first; plane < first + norm_.members(); ++plane) {
      const int64_t at = plane * norm_.plane * lanes;
      input_grad(g + at, x + at, norm_.plane, slopes, weight_of(plane),
                 call.outputs[0].as<float>() + at);
    }
  }

  void store_channels(const Lanes* planes, bool wanted, float* to) const {
    for (int64_t channel = 0; channel < norm_.channels; ++channel) {
      double sum = 0;
      for (int64_t eight = 0; wanted && eight < norm_.batch; ++eight) {
        for (const double value : planes[eight * norm_.channels + channel]) sum += value;
      }
      to[channel] = static_cast<float>(sum);
    }
  }

  Norm norm_;
};

// Images of one type and shape in batch_layout, and all else plain.
bool applies_to(const KernelUse& use, std::initializer_list<size_t> images) {
  const auto is_image = [&](size_t i) {
    return std::find(images.begin(), images.end(), i) != images.end();
  };
  for (size_t i = 0; i < use.inputs.size(); ++i) {
    if (!use.has_input(i)) continue;
    const size_t rank = use.inputs[i].geometry.shape.size();
    if (is_image(i) ? rank < 3 || !is_batch8(use.inputs[i], rank - 1)
                    : !is_plain_dense(use.inputs[i])) {
      return false;
    }
  }
  const Shape& shape = use.inputs[*images.begin()].geometry.shape;
  if (!is_batch8(use.outputs[0], shape.size() - 1)) return false;
  return is_plain_dense(use.outputs[1]) && is_plain_dense(use.outputs[2]) &&
         shape[0] * lanes == use.attrs.integer("N") && shape[1] == use.attrs.integer("C");
}

bool norm_applies(const KernelUse& use) { return applies_to(use, {0}); }
bool backward_applies(const KernelUse& use) { return applies_to(use, {0, 1}); }

std::unique_ptr<PreparedKernel> prepare_norm(const KernelUse& use) {
  Norm norm(use.attrs, use.inputs[0].geometry.shape);
  norm.eps = use.attrs.number("eps");
  return std::make_unique<Batch8GroupNorm>(norm);
}

std::unique_ptr<PreparedKernel> prepare_backward(const KernelUse& use) {
  Norm norm(use.attrs, use.inputs[1].geometry.shape);
  const auto& mask = use.attrs.integers("output_mask");
  for (size_t i = 0; i < 3; ++i) norm.wanted[i] = mask[i] != 0;
  return std::make_unique<Batch8GroupNormBackward>(norm);
}

class Batch8ChannelSums : public PreparedKernel {
 public:
  Batch8ChannelSums(int64_t eights, int64_t channels, int64_t plane)
      : eights_(eights), channels_(channels), plane_(plane) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    constexpr int64_t piece_vectors = 2048;
    const int64_t grain = std::max<int64_t>(1, piece_vectors / (eights_ * plane_));
    call.pool.run_ranges(channels_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t channel = begin; channel < end; ++channel) {
        double sum = 0;
        for (int64_t eight = 0; eight < eights_; ++eight) {
          const auto* from =
              call.inputs[0].as<const float>() + (eight * channels_ + channel) * plane_ * lanes;
          for (const double value : sum_of(from, plane_)) sum += value;
        }
        call.outputs[0].as<float>()[channel] = static_cast<float>(sum);
      }
    });
  }

 private:
  int64_t eights_, channels_, plane_;
};

// Over all dimensions but the channels: the gradient of a bias.
bool channel_sums_apply(const KernelUse& use) {
  const size_t physical_rank = use.inputs[0].geometry.shape.size();
  if (physical_rank < 3 || !is_batch8(use.inputs[0], physical_rank - 1) ||
      !is_plain_dense(use.outputs[0])) {
    return false;
  }
  const auto rank = static_cast<int64_t>(physical_rank) - 1;
  std::vector<bool> summed(static_cast<size_t>(rank), false);
  for (const int64_t dim : use.attrs.integers("dim")) {
    summed[static_cast<size_t>(dim < 0 ? dim + rank : dim)] = true;
  }
  summed[1].flip();
  return std::all_of(summed.begin(), summed.end(), [](bool is) { return is; });
}

std::unique_ptr<PreparedKernel> prepare_channel_sums(const KernelUse& use) {
  const Shape& shape = use.inputs[0].geometry.shape;
  return std::make_unique<Batch8ChannelSums>(shape[0], shape[1],
                                             numel(shape) / (shape[0] * shape[1] * lanes));
}

}  // namespace

std::span<const KernelEntry> batch8_norm_entries() {
  static constexpr KernelEntry entries[] = {
      {"group_norm", "batch8", norm_applies, prepare_norm, nullptr, true},
      {"group_norm_backward", "batch8", backward_applies, prepare_backward, nullptr, true},
      {"sum", "batch8", channel_sums_apply, prepare_channel_sums, nullptr, true},
  };
  return entries;
}

}  // namespace tessera::cpu
