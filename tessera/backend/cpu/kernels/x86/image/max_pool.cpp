// Max pooling of images and its gradient. Grouped images take one vector for each place; plain ones
// take eight neighbouring places of a row, and the places at the edges one by one. Results are bit
// for bit those of the reference.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/backend/cpu/kernels/x86/avx2.h"
#include "tessera/backend/cpu/kernels/x86/image/image_planes.h"
#include "tessera/base/error.h"

namespace tessera::cpu {
namespace {

using namespace avx2;

constexpr int64_t piece_elements = 32768;  // about; of input and result together

struct Windows {
  ImagePlanes from, to;
  int64_t kernel[2], stride[2], padding[2], dilation[2];

  // Rows or columns of the input that a place reads: first, one past the last.
  int64_t begin(int d, int64_t place) const {
    const int64_t at = place * stride[d] - padding[d];
    return at >= 0 ? at : at + (-at + dilation[d] - 1) / dilation[d] * dilation[d];
  }
  int64_t end(int d, int64_t place) const {
    const int64_t reach = place * stride[d] - padding[d] + (kernel[d] - 1) * dilation[d] + 1;
    return std::min(reach, d == 0 ? from.height : from.width);
  }
  // Rows of results for a piece.
  int64_t grain() const {
    return std::max<int64_t>(1, piece_elements / (to.row() + from.row() * stride[0]));
  }
};

void one_place(const Windows& w, const float* from, int64_t row, int64_t column, float* out,
               int32_t* index) {
  float best = -std::numeric_limits<float>::infinity();
  int64_t at = w.begin(0, row) * w.from.width + w.begin(1, column);
  for (int64_t j = w.begin(0, row); j < w.end(0, row); j += w.dilation[0]) {
    for (int64_t k = w.begin(1, column); k < w.end(1, column); k += w.dilation[1]) {
      const float value = from[j * w.from.width + k];
      if (!(value > best) && !std::isnan(value)) continue;
      best = value;
      at = j * w.from.width + k;
    }
  }
  *out = best;
  *index = static_cast<int32_t>(at);
}

// The largest so far and its place.
struct Best {
  __m256 value;
  __m256i place;
};

TESSERA_AVX2 inline void meet(Best& best, __m256 value, __m256i place) {
  const __m256 larger = _mm256_cmp_ps(value, best.value, _CMP_GT_OQ);
  const __m256 better = _mm256_or_ps(larger, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  best.value = _mm256_blendv_ps(best.value, value, better);
  best.place = _mm256_blendv_epi8(best.place, place, _mm256_castps_si256(better));
}

TESSERA_AVX2 void grouped_row(const Windows& w, const float* from, int64_t row, float* out,
                              int32_t* index) {
  const int64_t top = w.begin(0, row), bottom = w.end(0, row);
  for (int64_t column = 0; column < w.to.width; ++column) {
    const int64_t left = w.begin(1, column), right = w.end(1, column);
    Best best{lowest(), _mm256_set1_epi32(static_cast<int>(top * w.from.width + left))};
    for (int64_t j = top; j < bottom; j += w.dilation[0]) {
      for (int64_t k = left; k < right; k += w.dilation[1]) {
        const int64_t at = j * w.from.width + k;
        meet(best, _mm256_loadu_ps(from + at * lanes), _mm256_set1_epi32(static_cast<int>(at)));
      }
    }
    _mm256_storeu_ps(out + column * lanes, best.value);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(index + column * lanes), best.place);
  }
}

// Eight places whose windows lie within the row.
TESSERA_AVX2 void eight_places(const Windows& w, const float* from, int64_t row, int64_t column,
                               float* out, int32_t* index) {
  const __m256i places = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                                            _mm256_set1_epi32(static_cast<int>(w.stride[1])));
  const int64_t top = w.begin(0, row), bottom = w.end(0, row), left = w.begin(1, column);
  const auto place = [](int64_t at) { return static_cast<int>(at); };
  Best best{lowest(),
            _mm256_add_epi32(places, _mm256_set1_epi32(place(top * w.from.width + left)))};
  for (int64_t j = top; j < bottom; j += w.dilation[0]) {
    for (int64_t k = 0; k < w.kernel[1]; ++k) {
      const int64_t at = j * w.from.width + left + k * w.dilation[1];
      meet(best, load_strided(from + at, w.stride[1], places),
           _mm256_add_epi32(places, _mm256_set1_epi32(place(at))));
    }
  }
  _mm256_storeu_ps(out + column, best.value);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(index + column), best.place);
}

// max_pool2d_with_indices(self) -> out, indices
class MaxPool : public PreparedKernel {
 public:
  explicit MaxPool(const Windows& windows) : w_(windows) {
    const int64_t reach = (w_.kernel[1] - 1) * w_.dilation[1];
    while (first_ < w_.to.width && first_ * w_.stride[1] < w_.padding[1]) ++first_;
    last_ = first_;
    while (last_ < w_.to.width && last_ * w_.stride[1] - w_.padding[1] + reach < w_.from.width) {
      ++last_;
    }
    if (last_ - first_ < lanes) last_ = first_;
  }

  void run(const KernelCall& call, std::span<std::byte>) const override {
    call.pool.run_ranges(w_.to.count * w_.to.height, w_.grain(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float* from = call.inputs[0].as<float>() + i / w_.to.height * w_.from.plane();
        float* out = call.outputs[0].as<float>() + i * w_.to.row();
        int32_t* index = call.outputs[1].as<int32_t>() + i * w_.to.row();
        if (w_.to.inner == lanes) {
          grouped_row(w_, from, i % w_.to.height, out, index);
        } else {
          plain_row(from, i % w_.to.height, out, index);
        }
      }
    });
  }

 private:
  void plain_row(const float* from, int64_t row, float* out, int32_t* index) const {
    const auto single = [&](int64_t at) { one_place(w_, from, row, at, out + at, index + at); };
    for (int64_t at = 0; at < first_; ++at) single(at);
    // The last eight may overlap those before: they are computed twice.
    for (int64_t at = first_; at < last_; at += lanes) {
      eight_places(w_, from, row, std::min(at, last_ - lanes), out, index);
    }
    for (int64_t at = last_; at < w_.to.width; ++at) single(at);
  }

  Windows w_;
  int64_t first_ = 0, last_ = 0;  // places whose windows lie within the row
};

// For each element of a grouped input the windows it lies in, in order.
TESSERA_AVX2 void grouped_grad_row(const Windows& w, const float* grad, const int32_t* index,
                                   int64_t row, float* out) {
  const auto first = [&w](int d, int64_t at) {
    const int64_t before = at + w.padding[d] - (w.kernel[d] - 1) * w.dilation[d];
    return before <= 0 ? 0 : (before + w.stride[d] - 1) / w.stride[d];
  };
  const auto last = [&w](int d, int64_t at, int64_t places) {
    return std::min((at + w.padding[d]) / w.stride[d], places - 1);
  };
  const int64_t top = first(0, row), bottom = last(0, row, w.to.height);
  for (int64_t column = 0; column < w.from.width; ++column) {
    const int64_t left = first(1, column), right = last(1, column, w.to.width);
    const __m256i place = _mm256_set1_epi32(static_cast<int>(row * w.from.width + column));
    __m256 sum = _mm256_setzero_ps();
    for (int64_t j = top; j <= bottom; ++j) {
      for (int64_t k = left; k <= right; ++k) {
        const int64_t at = (j * w.to.width + k) * lanes;
        const __m256i chosen = _mm256_cmpeq_epi32(
            place, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(index + at)));
        sum = _mm256_add_ps(sum,
                            _mm256_and_ps(_mm256_loadu_ps(grad + at), _mm256_castsi256_ps(chosen)));
      }
    }
    _mm256_storeu_ps(out + column * lanes, sum);
  }
}

// max_pool2d_with_indices_backward(grad, self, indices) of plain images: each plane is cleared,
// then every place adds its gradient where it found the largest, in order.
class PlainMaxPoolGrad : public PreparedKernel {
 public:
  explicit PlainMaxPoolGrad(const Windows& windows) : w_(windows) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    const int64_t from = w_.from.plane(), to = w_.to.plane();
    const int64_t grain = std::max<int64_t>(1, piece_elements / (from + 4 * to));
    call.pool.run_ranges(w_.from.count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float* grad = call.inputs[0].as<float>() + i * to;
        const int32_t* index = call.inputs[2].as<int32_t>() + i * to;
        float* out = call.outputs[0].as<float>() + i * from;
        std::fill_n(out, from, 0.0F);
        for (int64_t k = 0; k < to; ++k) {
          check(index[k] >= 0 && index[k] < from,
                "max pooling: index {} is outside the {} elements of a plane", index[k], from);
          out[index[k]] += grad[k];
        }
      }
    });
  }

 private:
  Windows w_;
};

// max_pool2d_with_indices_backward(grad, self, indices) of grouped images.
class MaxPoolGrad : public PreparedKernel {
 public:
  explicit MaxPoolGrad(const Windows& windows) : w_(windows) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    const int64_t grain = std::max<int64_t>(1, piece_elements / (2 * w_.from.row()));
    call.pool.run_ranges(w_.from.count * w_.from.height, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = i / w_.from.height * w_.to.plane();
        grouped_grad_row(w_, call.inputs[0].as<float>() + at, call.inputs[2].as<int32_t>() + at,
                         i % w_.from.height, call.outputs[0].as<float>() + i * w_.from.row());
      }
    });
  }

 private:
  Windows w_;
};

Windows windows_of(const KernelUse& use, const KernelOperand& from, const KernelOperand& to) {
  Windows w{*image_planes(from, DType::f32), *image_planes(to, DType::f32), {}, {}, {}, {}};
  const auto fill = [&](std::string_view name, int64_t(&values)[2], const int64_t(&missing)[2]) {
    const auto& given = use.attrs.integers(name);
    for (size_t d = 0; d < 2; ++d) {
      values[d] = given.empty() ? missing[d] : given[given.size() == 1 ? 0 : d];
    }
  };
  fill("kernel_size", w.kernel, {1, 1});
  fill("stride", w.stride, w.kernel);  // PyTorch's default
  fill("padding", w.padding, {0, 0});
  fill("dilation", w.dilation, {1, 1});
  return w;
}

bool fits_together(const KernelOperand& from, const KernelOperand& to, const KernelOperand& index) {
  return image_planes(from, DType::f32) && image_planes(to, DType::f32) &&
         image_planes(index, DType::i32) && from.layout == to.layout && from.layout == index.layout;
}

bool forward_applies(const KernelUse& use) {
  return fits_together(use.inputs[0], use.outputs[0], use.outputs[1]);
}

std::unique_ptr<PreparedKernel> prepare_forward(const KernelUse& use) {
  return std::make_unique<MaxPool>(windows_of(use, use.inputs[0], use.outputs[0]));
}

bool backward_applies(const KernelUse& use) {
  return fits_together(use.outputs[0], use.inputs[0], use.inputs[2]);
}

std::unique_ptr<PreparedKernel> prepare_backward(const KernelUse& use) {
  const Windows windows = windows_of(use, use.outputs[0], use.inputs[0]);
  if (use.outputs[0].layout.plain()) return std::make_unique<PlainMaxPoolGrad>(windows);
  return std::make_unique<MaxPoolGrad>(windows);
}

}  // namespace

std::span<const KernelEntry> max_pool_entries() {
  static constexpr KernelEntry entries[] = {
      {"max_pool2d_with_indices", "avx2_max_pool", forward_applies, prepare_forward, nullptr, true},
      {"max_pool2d_with_indices_backward", "avx2_max_pool_backward", backward_applies,
       prepare_backward, nullptr, true},
  };
  return entries;
}

}  // namespace tessera::cpu
