// Images resized, and the gradients brought back. Both are the same sum, with weights that depend
// on rows and on columns alone: first rows are mixed, a whole row at a time, then columns. In
// grouped layouts a column is a vector; in the plain one eight columns are gathered. Results
// are within 3e-7 of the reference's, gradients within 5e-7, relative to the largest.
#include "tessera/kernels/resample.h"

#include <algorithm>
#include <cstring>

#include "tessera/backend/cpu/kernels/x86/avx2.h"
#include "tessera/backend/cpu/kernels/x86/image/image_planes.h"
#include "tessera/base/divided_up.h"

namespace tessera::cpu {
namespace {

using namespace avx2;
using kernels::Taps;

constexpr int64_t piece_elements = 32768;  // about; of input and result together

// For every position of the result the positions it is mixed from, up to `most` of them. Stored by
// number of the tap, so that neighbours lie side by side; a place that is not used holds -1 and is
// never read: infinity times 0 would not be nothing.
struct Mix {
  int64_t size = 0, most = 1;
  std::vector<int32_t> at;
  std::vector<float> weight;
  std::vector<int32_t> count;  // of each position
  bool copies = true;          // one position with weight 1

  int64_t place(int64_t tap, int64_t i) const { return tap * size + i; }
};

Mix mix_of(const std::vector<std::vector<std::pair<int64_t, float>>>& lists) {
  Mix mix;
  mix.size = static_cast<int64_t>(lists.size());
  for (const auto& list : lists) mix.most = std::max(mix.most, static_cast<int64_t>(list.size()));
  mix.at.assign(static_cast<size_t>(mix.size * mix.most), -1);
  mix.weight.assign(mix.at.size(), 0);
  for (int64_t i = 0; i < mix.size; ++i) {
    const auto& list = lists[static_cast<size_t>(i)];
    mix.count.push_back(static_cast<int32_t>(list.size()));
    for (size_t tap = 0; tap < list.size(); ++tap) {
      const auto place = static_cast<size_t>(mix.place(static_cast<int64_t>(tap), i));
      mix.at[place] = static_cast<int32_t>(list[tap].first);
      mix.weight[place] = list[tap].second;
    }
    mix.copies = mix.copies && list.size() == 1 && list[0].second == 1;
  }
  return mix;
}

// From the taps of the resizing: forward as they are, backward by the position they read. Those of
// weight 0 stay: PyTorch multiplies with them too, and what is not finite shows it.
Mix mix_of(const Taps& taps, int64_t from, bool backward) {
  std::vector<std::vector<std::pair<int64_t, float>>> lists(backward ? static_cast<size_t>(from)
                                                                     : taps.size());
  for (size_t i = 0; i < taps.size(); ++i) {
    for (size_t k = 0; k < taps[i].count; ++k) {
      const auto at = static_cast<size_t>(taps[i].at[k]);
      if (backward) {
        lists[at].emplace_back(static_cast<int64_t>(i), taps[i].weight[k]);
      } else {
        lists[i].emplace_back(taps[i].at[k], taps[i].weight[k]);
      }
    }
  }
  return mix_of(lists);
}

// Adds `taps` rows of x with their weights to `out`, or puts them there.
template <int taps>
TESSERA_AVX2 void add_rows(const float* const* x, const float* weights, bool first, int64_t length,
                           float* out) {
  const int64_t whole = length / lanes * lanes;
  __m256 weight[taps];
  for (int k = 0; k < taps; ++k) weight[k] = _mm256_set1_ps(weights[k]);
  for (int64_t i = 0; i < whole; i += lanes) {
    __m256 sum = first ? _mm256_setzero_ps() : _mm256_loadu_ps(out + i);
    for (int k = 0; k < taps; ++k) sum = _mm256_fmadd_ps(weight[k], _mm256_loadu_ps(x[k] + i), sum);
    _mm256_storeu_ps(out + i, sum);
  }
  if (whole == length) return;
  const __m256i mask = mask_of(length - whole);
  __m256 sum = first ? _mm256_setzero_ps() : _mm256_maskload_ps(out + whole, mask);
  for (int k = 0; k < taps; ++k) {
    sum = _mm256_fmadd_ps(weight[k], _mm256_maskload_ps(x[k] + whole, mask), sum);
  }
  _mm256_maskstore_ps(out + whole, mask, sum);
}

// out = sum over taps of weight * row of x, two at a time.
void mix_rows(const Mix& mix, int64_t row, const float* x, int64_t length, float* out) {
  const int64_t taps = mix.count[static_cast<size_t>(row)];
  if (taps == 0) std::fill(out, out + length, 0.0F);
  for (int64_t tap = 0; tap < taps; tap += 2) {
    const float* rows[2] = {};
    float weights[2] = {};
    const int64_t count = std::min<int64_t>(2, taps - tap);
    for (int64_t k = 0; k < count; ++k) {
      const auto place = static_cast<size_t>(mix.place(tap + k, row));
      rows[k] = x + mix.at[place] * length;
      weights[k] = mix.weight[place];
    }
    if (count == 2) {
      add_rows<2>(rows, weights, tap == 0, length, out);
    } else {
      add_rows<1>(rows, weights, tap == 0, length, out);
    }
  }
}

TESSERA_AVX2 void mix_grouped_columns(const Mix& mix, const float* x, float* out) {
  const int32_t* at = mix.at.data();
  const float* weight = mix.weight.data();
  const int64_t size = mix.size;
  for (int64_t column = 0; column < size; ++column) {
    __m256 sum = _mm256_setzero_ps();
    const int64_t end = column + mix.count[static_cast<size_t>(column)] * size;
    for (int64_t place = column; place < end; place += size) {
      const __m256 value = _mm256_loadu_ps(x + int64_t{at[place]} * lanes);
      sum = _mm256_fmadd_ps(_mm256_set1_ps(weight[place]), value, sum);
    }
    _mm256_storeu_ps(out + column * lanes, sum);
  }
}

TESSERA_AVX2 void mix_plain_columns(const Mix& mix, const float* x, float* out) {
  const int64_t size = mix.size, end = mix.size * mix.most;
  for (int64_t column = 0; column < size; column += lanes) {
    const __m256i mask = mask_of(size - column);
    __m256 sum = _mm256_setzero_ps();
    for (int64_t place = column; place < end; place += size) {
      const __m256i at = _mm256_maskload_epi32(mix.at.data() + place, mask);
      const __m256 weight = _mm256_maskload_ps(mix.weight.data() + place, mask);
      const __m256 used = _mm256_castsi256_ps(_mm256_xor_si256(at, _mm256_set1_epi32(-1)));
      const __m256 value = _mm256_mask_i32gather_ps(_mm256_setzero_ps(), x, at, used, 4);
      sum = _mm256_fmadd_ps(weight, value, sum);
    }
    _mm256_maskstore_ps(out + column, mask, sum);
  }
}

class Resample : public PreparedKernel {
 public:
  Resample(const ImagePlanes& from, const ImagePlanes& to, Mix rows, Mix columns)
      : from_(from), to_(to), rows_(std::move(rows)), columns_(std::move(columns)) {
    const int64_t work = to_.row() + from_.row() * rows_.most;
    const int64_t all = to_.count * to_.height;
    grain_ = std::max<int64_t>(1, piece_elements / work);
    pieces_ = divided_up(all, grain_);
  }

  // A mixed row for each piece.
  int64_t workspace_bytes() const override {
    return rows_.copies ? 0 : pieces_ * aligned(from_.row() * int64_t{sizeof(float)});
  }

  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    const int64_t room = aligned(from_.row() * int64_t{sizeof(float)});
    const int64_t all = to_.count * to_.height;
    call.pool.run(pieces_, [&](int64_t piece) {
      auto* mixed = reinterpret_cast<float*>(workspace.data() + (rows_.copies ? 0 : piece * room));
      const int64_t begin = piece * grain_;
      for (int64_t i = begin; i < std::min(all, begin + grain_); ++i) {
        one_row(call, i, i == begin, mixed);
      }
    });
  }

 private:
  void one_row(const KernelCall& call, int64_t i, bool first, float* mixed) const {
    const int64_t row = i % to_.height;
    const float* from = call.inputs[0].as<float>() + i / to_.height * from_.plane();
    float* out = call.outputs[0].as<float>() + i * to_.row();
    if (rows_.copies) {
      const int32_t at = rows_.at[static_cast<size_t>(row)];
      if (!first && row > 0 && at == rows_.at[static_cast<size_t>(row - 1)]) {
        std::memcpy(out, out - to_.row(), static_cast<size_t>(to_.row()) * sizeof(float));
        return;
      }
      from += at * from_.row();
    } else {
      mix_rows(rows_, row, from, from_.row(), mixed);
      from = mixed;
    }
    if (to_.inner == lanes) {
      mix_grouped_columns(columns_, from, out);
    } else {
      mix_plain_columns(columns_, from, out);
    }
  }

  ImagePlanes from_, to_;
  Mix rows_, columns_;
  int64_t grain_ = 1, pieces_ = 1;
};

bool applies(const KernelUse& use) {
  return image_planes(use.inputs[0], DType::f32) && image_planes(use.outputs[0], DType::f32) &&
         use.inputs[0].layout == use.outputs[0].layout;
}

// The factor in either of ATen's two forms; 0 where there is none.
double scale_of(const Attrs& attrs, size_t d) {
  if (attrs.has("scale_factors")) return attrs.numbers("scale_factors").at(d);
  const std::string_view name = d == 0 ? "scales_h" : "scales_w";
  return attrs.has(name) ? attrs.number(name) : 0;
}

template <bool linear, bool backward>
std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  const ImagePlanes from = *image_planes(use.inputs[0], DType::f32);
  const ImagePlanes to = *image_planes(use.outputs[0], DType::f32);
  const ImagePlanes& small = backward ? to : from;  // the side the taps point into
  const ImagePlanes& large = backward ? from : to;
  const auto mix = [&](int64_t inside, int64_t positions, size_t d) {
    const double scale = scale_of(use.attrs, d);
    const Taps taps =
        linear ? kernels::linear_taps(inside, positions, scale, use.attrs.flag("align_corners"))
               : kernels::nearest_taps(inside, positions, scale);
    return mix_of(taps, inside, backward);
  };
  return std::make_unique<Resample>(from, to, mix(small.height, large.height, 0),
                                    mix(small.width, large.width, 1));
}

}  // namespace

std::span<const KernelEntry> resample_entries() {
  static constexpr KernelEntry entries[] = {
      {"upsample_nearest2d", "avx2_nearest", applies, prepare<false, false>, nullptr, true},
      {"upsample_nearest2d_backward", "avx2_nearest_backward", applies, prepare<false, true>,
       nullptr, true},
      {"upsample_bilinear2d", "avx2_bilinear", applies, prepare<true, false>, nullptr, true},
      {"upsample_bilinear2d_backward", "avx2_bilinear_backward", applies, prepare<true, true>,
       nullptr, true},
  };
  return entries;
}

}  // namespace tessera::cpu
