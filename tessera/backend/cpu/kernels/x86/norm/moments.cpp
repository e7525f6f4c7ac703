// Mean and variance of channels in one pass over memory. The elements of a channel are cut into
// tiles. A tile sums distances from an origin, the mean of its first elements, and their squares
// in single precision: the origin lies so close to the tile's mean that nothing much cancels. Tiles
// are then joined in double precision, in order. Where that gives no finite numbers (an origin is
// infinite, or a sum too large) the channel is computed again, plainly and in double precision.
#include <algorithm>
#include <cmath>

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/kernels/x86/avx2.h"
#include "tessera/backend/cpu/kernels/x86/halves.h"
#include "tessera/base/divided_up.h"

namespace tessera::cpu {
namespace {

using namespace avx2;

constexpr int64_t tile_vectors = 512;       // of eight elements
constexpr int64_t origin_vectors = 8;       // of a tile, for its origin
constexpr int64_t piece_elements = 32768;   // about; below this waking a thread does not pay
constexpr int64_t tile_segments_most = 64;  // keeps short segments' origins representative

// Where a channel, or eight of them side by side, lies: `segments` runs of `length` vectors or
// elements.
struct Channels {
  int64_t groups = 0, group_stride = 0;
  int64_t segments = 0, segment_stride = 0;
  int64_t length = 0;
  int64_t step = 1;   // between two elements of a run
  bool wide = false;  // each element is a vector of eight channels
  int64_t count = 0;  // channels

  int64_t tile_length() const { return wide ? tile_vectors : tile_vectors * lanes; }
  int64_t tiles_per_segment() const { return (length + tile_length() - 1) / tile_length(); }
  int64_t segments_per_tile() const {
    return std::clamp<int64_t>(tile_length() / length, 1, tile_segments_most);
  }
  int64_t tiles() const {
    const int64_t tall = segments_per_tile();
    return tiles_per_segment() * divided_up(segments, tall);
  }
};

// Of the elements of one tile, or of all before some tile.
struct Moment {
  double count = 0;
  double mean[lanes] = {}, squares[lanes] = {};

  void join(const Moment& next) {
    const double total = count + next.count;
    const double share = next.count / total;
    for (int64_t i = 0; i < lanes; ++i) {
      const double shift = next.mean[i] - mean[i];
      mean[i] += shift * share;
      squares[i] += next.squares[i] + shift * shift * count * share;
    }
    count = total;
  }
};

// Four chains of sums: additions take four cycles.
struct Sums {
  __m256 sum[4], squares[4];
};

TESSERA_AVX2 inline void clear(Sums& sums) {
  for (int i = 0; i < 4; ++i) sums.sum[i] = sums.squares[i] = _mm256_setzero_ps();
}

TESSERA_AVX2 inline void step(Sums& sums, int chain, __m256 distance) {
  sums.sum[chain] = _mm256_add_ps(sums.sum[chain], distance);
  sums.squares[chain] = _mm256_fmadd_ps(distance, distance, sums.squares[chain]);
}

TESSERA_AVX2 inline __m256 joined(const __m256 (&v)[4]) {
  return _mm256_add_ps(_mm256_add_ps(v[0], v[1]), _mm256_add_ps(v[2], v[3]));
}

// One channel: `segments` runs of `length` neighbouring elements.
template <typename Element>
TESSERA_AVX2 void narrow_tile(const Channels& c, const Element* x, int64_t segments, int64_t length,
                              Moment& out) {
  const int64_t whole = length / lanes * lanes;
  const __m256i mask = mask_of(length - whole);
  const int64_t sampled = std::min(whole, origin_vectors * lanes);
  __m256 sample = sampled > 0 ? _mm256_setzero_ps() : load_first(x, length);
  for (int64_t i = 0; i < sampled; i += lanes) sample = _mm256_add_ps(sample, load_eight(x + i));
  const __m256 origin =
      _mm256_set1_ps(sum_of_lanes(sample) / static_cast<float>(sampled > 0 ? sampled : length));

  Sums sums;
  clear(sums);
  for (int64_t segment = 0; segment < segments; ++segment) {
    const Element* at = x + segment * c.segment_stride;
    int64_t i = 0;
    for (; i + 4 * lanes <= whole; i += 4 * lanes) {
      for (int k = 0; k < 4; ++k) {
        step(sums, k, _mm256_sub_ps(load_eight(at + i + k * lanes), origin));
      }
    }
    for (int k = 0; i < whole; i += lanes, ++k) {
      step(sums, k, _mm256_sub_ps(load_eight(at + i), origin));
    }
    if (whole == length) continue;
    const __m256 distance = _mm256_sub_ps(load_first(at + whole, length - whole), origin);
    step(sums, 3, _mm256_and_ps(distance, _mm256_castsi256_ps(mask)));
  }
  out.count = static_cast<double>(segments * length);
  const double sum = sum_of_lanes(joined(sums.sum));
  const double squares = sum_of_lanes(joined(sums.squares));
  out.mean[0] = _mm256_cvtss_f32(origin) + sum / out.count;
  out.squares[0] = squares - sum * sum / out.count;
}

template <bool whole, typename Element>
TESSERA_AVX2_INLINE __m256 channels_at(const Element* x, int64_t present) {
  return whole ? load_eight(x) : load_first(x, present);
}

// Eight channels side by side, or those that are `present`.
template <bool whole, typename Element>
TESSERA_AVX2 void wide_tile(const Channels& c, const Element* x, int64_t segments, int64_t length,
                            int64_t present, Moment& out) {
  const int64_t sampled = std::min(length, origin_vectors);
  __m256 origin = _mm256_setzero_ps();
  for (int64_t i = 0; i < sampled; ++i) {
    origin = _mm256_add_ps(origin, channels_at<whole>(x + i * c.step, present));
  }
  origin = _mm256_div_ps(origin, _mm256_set1_ps(static_cast<float>(sampled)));

  Sums sums;
  clear(sums);
  for (int64_t segment = 0; segment < segments; ++segment) {
    const Element* at = x + segment * c.segment_stride;
    int64_t i = 0;
    for (; i + 4 <= length; i += 4, at += 4 * c.step) {
      for (int k = 0; k < 4; ++k) {
        step(sums, k, _mm256_sub_ps(channels_at<whole>(at + k * c.step, present), origin));
      }
    }
    for (int k = 0; i < length; ++i, ++k, at += c.step) {
      step(sums, k, _mm256_sub_ps(channels_at<whole>(at, present), origin));
    }
  }
  float origins[lanes], sum[lanes], squares[lanes];
  _mm256_storeu_ps(origins, origin);
  _mm256_storeu_ps(sum, joined(sums.sum));
  _mm256_storeu_ps(squares, joined(sums.squares));
  out.count = static_cast<double>(segments * length);
  for (int64_t i = 0; i < lanes; ++i) {
    out.mean[i] = origins[i] + sum[i] / out.count;
    out.squares[i] = squares[i] - double{sum[i]} * sum[i] / out.count;
  }
}

template <typename Element>
TESSERA_AVX2 void tile_moment(const Channels& c, const Element* x, int64_t group, int64_t tile,
                              Moment& out) {
  const int64_t row = tile / c.tiles_per_segment() * c.segments_per_tile();
  const int64_t begin = tile % c.tiles_per_segment() * c.tile_length();
  const int64_t segments = std::min(c.segments_per_tile(), c.segments - row);
  const int64_t length = std::min(c.tile_length(), c.length - begin);
  const Element* at = x + group * c.group_stride + row * c.segment_stride + begin * c.step;
  if (!c.wide) return narrow_tile(c, at, segments, length, out);
  const int64_t present = c.count - group * lanes;
  if (present >= lanes) return wide_tile<true>(c, at, segments, length, present, out);
  wide_tile<false>(c, at, segments, length, present, out);
}

struct MeanAndVariance {
  double mean = 0, variance = 0;
};

double as_double(float value) { return value; }
double as_double(Half value) { return to_float(value); }

// As PyTorch computes it. Slow: two passes, an element at a time.
template <typename Element>
MeanAndVariance plain_moments(const Channels& c, const Element* x, int64_t channel) {
  const int64_t width = c.wide ? lanes : 1;
  const Element* first = x + channel / width * c.group_stride + channel % width;
  const auto total = [&](auto term) {
    double sum = 0;
    for (int64_t segment = 0; segment < c.segments; ++segment) {
      const Element* at = first + segment * c.segment_stride;
      for (int64_t i = 0; i < c.length; ++i) sum += term(as_double(at[i * c.step]));
    }
    return sum / static_cast<double>(c.segments * c.length);
  };
  const double mean = total([](double v) { return v; });
  return {mean, total([mean](double v) { return (v - mean) * (v - mean); })};
}

// moments(x) -> mean, var
template <typename Element>
class MomentsKernel : public PreparedKernel {
 public:
  explicit MomentsKernel(const Channels& channels) : c_(channels) {
    const int64_t elements = c_.segments * c_.length * (c_.wide ? lanes : 1);
    const int64_t tiles = c_.tiles();
    splits_ = std::clamp<int64_t>(elements / (2 * piece_elements), 1, std::min<int64_t>(tiles, 64));
    tiles_per_split_ = divided_up(tiles, splits_);
    splits_ = divided_up(tiles, tiles_per_split_);
    grain_ = std::max<int64_t>(1, piece_elements * splits_ / std::max<int64_t>(1, elements));
  }

  int64_t workspace_bytes() const override {
    return c_.groups * splits_ * static_cast<int64_t>(sizeof(Moment));
  }

  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    auto* moments = reinterpret_cast<Moment*>(workspace.data());
    const Element* x = call.inputs[0].as<Element>();
    call.pool.run_ranges(c_.groups * splits_, grain_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) fold(x, i / splits_, i % splits_, moments[i]);
    });
    const int64_t width = c_.wide ? lanes : 1;
    float* means = call.outputs[0].as<float>();
    float* variances = call.outputs[1].as<float>();
    bool all_finite = true;
    for (int64_t group = 0; group < c_.groups; ++group) {
      Moment& moment = moments[group * splits_];
      for (int64_t i = 1; i < splits_; ++i) moment.join(moments[group * splits_ + i]);
      for (int64_t i = 0; i < std::min(width, c_.count - group * width); ++i) {
        const int64_t channel = group * width + i;
        means[channel] = static_cast<float>(moment.mean[i]);
        variances[channel] = static_cast<float>(std::max(moment.squares[i], 0.0) / moment.count);
        all_finite = all_finite && is_finite(means[channel], variances[channel]);
      }
    }
    if (all_finite) return;
    call.pool.run(c_.count, [&](int64_t channel) {
      if (is_finite(means[channel], variances[channel])) return;
      const MeanAndVariance plain = plain_moments(c_, x, channel);
      means[channel] = static_cast<float>(plain.mean);
      variances[channel] = static_cast<float>(plain.variance);
    });
  }

 private:
  static bool is_finite(float mean, float variance) {
    return std::isfinite(mean) && std::isfinite(variance);
  }

  void fold(const Element* x, int64_t group, int64_t split, Moment& out) const {
    const int64_t end = std::min(c_.tiles(), (split + 1) * tiles_per_split_);
    int64_t tile = split * tiles_per_split_;
    out = {};
    tile_moment(c_, x, group, tile, out);
    for (++tile; tile < end; ++tile) {
      Moment next;
      tile_moment(c_, x, group, tile, next);
      out.join(next);
    }
  }

  Channels c_;
  int64_t splits_ = 1, tiles_per_split_ = 1, grain_ = 1;
};

Channels channels_of(const KernelOperand& x) {
  const Shape& shape = x.geometry.shape;
  Channels c;
  c.segments = shape[0];
  c.length = numel(shape) / (shape[0] * shape[1]);
  c.segment_stride = shape[1] * c.length;
  c.groups = c.count = shape[1];
  c.group_stride = c.length;
  if (x.layout == channels_layout) {
    c.wide = true;
    c.length /= lanes;
    c.step = lanes;
    c.count = c.groups * lanes;
  } else if (c.length == 1) {  // a matrix: its columns, eight at a time
    c.wide = true;
    c.groups = divided_up(c.count, lanes);
    c.group_stride = lanes;
    c.step = c.count;
    std::swap(c.length, c.segments);
  }
  return c;
}

// Everything but the channels.
bool folds_all_but_channels(const KernelUse& use) {
  const auto rank = use.inputs[0].geometry.shape.size() - use.inputs[0].layout.cut.size();
  std::vector<int64_t> wanted;
  for (size_t i = 0; i < rank; ++i) {
    if (i != 1) wanted.push_back(static_cast<int64_t>(i));
  }
  return rank >= 2 && use.attrs.integers("dim") == wanted;
}

bool applies(const KernelUse& use) {
  const KernelOperand& x = use.inputs[0];
  const bool known = x.layout.plain() || x.layout == channels_layout || x.layout == batch_layout;
  const bool readable = x.dtype == DType::f32 || x.dtype == DType::f16;
  return known && readable && numel(x.geometry.shape) > 0 &&
         same_elements(x.geometry, dense(x.geometry.shape)) && folds_all_but_channels(use) &&
         use.outputs[0].layout.plain() && use.outputs[1].layout.plain();
}

std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  const Channels channels = channels_of(use.inputs[0]);
  if (use.inputs[0].dtype == DType::f16) return std::make_unique<MomentsKernel<Half>>(channels);
  return std::make_unique<MomentsKernel<float>>(channels);
}

}  // namespace

std::span<const KernelEntry> moments_entries() {
  static constexpr KernelEntry entries[] = {
      {.op = "moments",
       .name = "avx2_moments",
       .applies = applies,
       .prepare = prepare,
       .follows = true,
       .reads_halves = true},
  };
  return entries;
}

}  // namespace tessera::cpu
