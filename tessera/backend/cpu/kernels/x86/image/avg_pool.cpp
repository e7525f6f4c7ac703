// Average pooling of images and its gradient, also with windows that are spread evenly. Grouped
// images take one vector for each place; plain ones take eight neighbouring places of a row, and
// the places at the edges one by one. Results are bit for bit those of the reference, but for
// plain images with one place each: their sum is made of eight.
#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/backend/cpu/kernels/x86/image/image_planes.h"
#include "tessera/backend/cpu/kernels/x86/row_sums.h"
#include "tessera/kernels/pool.h"

namespace tessera::cpu {
namespace {

using namespace avx2;

constexpr int64_t piece_elements = 32768;  // about; of input and result together

// Rows or columns that a place reads, or places that read a row or column: first, one past the
// last.
struct Span {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const Span&) const = default;
};

struct Windows {
  ImagePlanes from, to;
  std::array<std::vector<Span>, 2> reads;    // of each place
  std::array<std::vector<Span>, 2> read_by;  // of each row or column of the input
  std::vector<double> divisors;              // of each place
  // All of them are powers of two: a multiplication gives the same bits as a division.
  bool exact_inverse = true;

  const Span& rows(int64_t place) const { return reads[0][static_cast<size_t>(place)]; }
  const Span& columns(int64_t place) const { return reads[1][static_cast<size_t>(place)]; }
  const double* divisors_of_row(int64_t row) const { return divisors.data() + row * to.width; }
  // The average of all.
  bool one_place() const {
    return to.height * to.width == 1 && rows(0).size() == from.height &&
           columns(0).size() == from.width;
  }
};

// Eight sums as doubles.
struct Sums {
  __m256d low, high;
};

TESSERA_AVX2 inline void clear(Sums& sums) { sums = {_mm256_setzero_pd(), _mm256_setzero_pd()}; }

TESSERA_AVX2 inline void add(Sums& sums, __m256 v) {
  sums.low = _mm256_add_pd(sums.low, _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
  sums.high = _mm256_add_pd(sums.high, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
}

TESSERA_AVX2 inline __m256 divided(const Sums& sums, double divisor, bool exact_inverse) {
  Sums q;
  if (exact_inverse) {
    const __m256d inverse = _mm256_set1_pd(1 / divisor);
    q = {_mm256_mul_pd(sums.low, inverse), _mm256_mul_pd(sums.high, inverse)};
  } else {
    const __m256d by = _mm256_set1_pd(divisor);
    q = {_mm256_div_pd(sums.low, by), _mm256_div_pd(sums.high, by)};
  }
  return _mm256_set_m128(_mm256_cvtpd_ps(q.high), _mm256_cvtpd_ps(q.low));
}

TESSERA_AVX2 void grouped_row(const Windows& w, const float* from, int64_t row, float* out) {
  const Span rows = w.rows(row);
  const double* divisors = w.divisors_of_row(row);
  for (int64_t column = 0; column < w.to.width; ++column) {
    const Span columns = w.columns(column);
    Sums sums;
    clear(sums);
    for (int64_t j = rows.begin; j < rows.end; ++j) {
      const float* at = from + (j * w.from.width + columns.begin) * lanes;
      for (int64_t k = 0; k < columns.size(); ++k) add(sums, _mm256_loadu_ps(at + k * lanes));
    }
    _mm256_storeu_ps(out + column * lanes, divided(sums, divisors[column], w.exact_inverse));
  }
}

float one_place(const Windows& w, const float* from, int64_t row, int64_t column) {
  const Span rows = w.rows(row), columns = w.columns(column);
  double sum = 0;
  for (int64_t j = rows.begin; j < rows.end; ++j) {
    for (int64_t k = columns.begin; k < columns.end; ++k) sum += from[j * w.from.width + k];
  }
  return static_cast<float>(sum / w.divisors_of_row(row)[column]);
}

// avg_pool2d(self), adaptive_avg_pool2d(self)
class AvgPool : public PreparedKernel {
 public:
  explicit AvgPool(Windows windows) : w_(std::move(windows)) {
    // The longest run of places that differ by one stride only.
    int64_t first = 0;
    for (int64_t at = 1; at <= w_.to.width; ++at) {
      if (at < w_.to.width && continues(first, at)) continue;
      if (at - first > last_ - first_) first_ = first, last_ = at;
      first = at;
    }
    if (last_ - first_ < lanes) first_ = last_ = 0;
    if (last_ > 0) stride_ = w_.columns(first_ + 1).begin - w_.columns(first_).begin;
  }

  void run(const KernelCall& call, std::span<std::byte>) const override {
    const int64_t row = w_.from.plane() / w_.to.height + w_.to.row();
    const int64_t grain = std::max<int64_t>(1, piece_elements / row);
    call.pool.run_ranges(w_.to.count * w_.to.height, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float* from = call.inputs[0].as<float>() + i / w_.to.height * w_.from.plane();
        float* out = call.outputs[0].as<float>() + i * w_.to.row();
        if (w_.to.inner == lanes) {
          grouped_row(w_, from, i % w_.to.height, out);
        } else if (w_.one_place()) {
          *out = static_cast<float>(sum_of(from, w_.from.plane()) / w_.divisors[0]);
        } else {
          plain_row(from, i % w_.to.height, out);
        }
      }
    });
  }

 private:
  bool continues(int64_t first, int64_t at) const {
    const Span &one = w_.columns(first), &next = w_.columns(first + 1), &here = w_.columns(at);
    return here.size() == one.size() &&
           w_.divisors[static_cast<size_t>(at)] == w_.divisors[static_cast<size_t>(first)] &&
           here.begin - one.begin == (at - first) * (next.begin - one.begin);
  }

  void plain_row(const float* from, int64_t row, float* out) const {
    for (int64_t at = 0; at < first_; ++at) out[at] = one_place(w_, from, row, at);
    // The last eight may overlap those before: they are computed twice.
    for (int64_t at = first_; at < last_; at += lanes) {
      eight_places(from, row, std::min(at, last_ - lanes), out);
    }
    for (int64_t at = last_; at < w_.to.width; ++at) out[at] = one_place(w_, from, row, at);
  }

  TESSERA_AVX2 void eight_places(const float* from, int64_t row, int64_t column, float* out) const {
    const __m256i places = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                                              _mm256_set1_epi32(static_cast<int>(stride_)));
    const Span rows = w_.rows(row), columns = w_.columns(column);
    Sums sums;
    clear(sums);
    for (int64_t j = rows.begin; j < rows.end; ++j) {
      for (int64_t k = columns.begin; k < columns.end; ++k) {
        add(sums, load_strided(from + j * w_.from.width + k, stride_, places));
      }
    }
    _mm256_storeu_ps(out + column,
                     divided(sums, w_.divisors_of_row(row)[column], w_.exact_inverse));
  }

  Windows w_;
  int64_t first_ = 0, last_ = 0, stride_ = 1;  // places that eight are taken of
};

// For each element of a grouped input the windows it lies in, in order.
template <bool exact_inverse>
TESSERA_AVX2 void grouped_grad_row(const Windows& w, const float* grad, int64_t row, float* out) {
  const Span rows = w.read_by[0][static_cast<size_t>(row)];
  for (int64_t column = 0; column < w.from.width; ++column) {
    const Span columns = w.read_by[1][static_cast<size_t>(column)];
    __m256 sum = _mm256_setzero_ps();
    for (int64_t j = rows.begin; j < rows.end; ++j) {
      for (int64_t k = columns.begin; k < columns.end; ++k) {
        const int64_t place = j * w.to.width + k;
        const __m256 g = _mm256_loadu_ps(grad + place * lanes);
        const auto divisor = static_cast<float>(w.divisors[static_cast<size_t>(place)]);
        sum = _mm256_add_ps(sum, exact_inverse ? _mm256_mul_ps(g, _mm256_set1_ps(1 / divisor))
                                               : _mm256_div_ps(g, _mm256_set1_ps(divisor)));
      }
    }
    _mm256_storeu_ps(out + column * lanes, sum);
  }
}

void plain_grad_row(const Windows& w, const float* grad, int64_t row, float* out) {
  std::fill_n(out, w.from.width, 0.0F);
  const Span rows = w.read_by[0][static_cast<size_t>(row)];
  for (int64_t j = rows.begin; j < rows.end; ++j) {
    const double* divisors = w.divisors_of_row(j);
    for (int64_t place = 0; place < w.to.width; ++place) {
      const Span columns = w.columns(place);
      const float share = grad[j * w.to.width + place] / static_cast<float>(divisors[place]);
      for (int64_t k = columns.begin; k < columns.end; ++k) out[k] += share;
    }
  }
}

// avg_pool2d_backward(grad, self), adaptive_avg_pool2d_backward(grad, self)
class AvgPoolGrad : public PreparedKernel {
 public:
  explicit AvgPoolGrad(Windows windows) : w_(std::move(windows)) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    if (w_.from.inner == 1 && w_.one_place()) return fill_planes(call);
    const int64_t grain = std::max<int64_t>(1, piece_elements / (2 * w_.from.row()));
    call.pool.run_ranges(w_.from.count * w_.from.height, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i % w_.from.height;
        const float* grad = call.inputs[0].as<float>() + i / w_.from.height * w_.to.plane();
        float* out = call.outputs[0].as<float>() + i * w_.from.row();
        if (i > begin && is_like_the_one_before(row)) {
          std::copy_n(out - w_.from.row(), w_.from.row(), out);
        } else {
          write_row(grad, row, out);
        }
      }
    });
  }

 private:
  void fill_planes(const KernelCall& call) const {
    const int64_t plane = w_.from.plane();
    const auto divisor = static_cast<float>(w_.divisors[0]);
    const int64_t grain = std::max<int64_t>(1, piece_elements / plane);
    call.pool.run_ranges(w_.from.count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        // As a sum: there is no -0.
        const float share = 0.0F + call.inputs[0].as<float>()[i] / divisor;
        std::fill_n(call.outputs[0].as<float>() + i * plane, plane, share);
      }
    });
  }

  bool is_like_the_one_before(int64_t row) const {
    const auto at = static_cast<size_t>(row);
    return row > 0 && w_.read_by[0][at] == w_.read_by[0][at - 1];
  }

  void write_row(const float* grad, int64_t row, float* out) const {
    if (w_.from.inner == 1) {
      plain_grad_row(w_, grad, row, out);
    } else if (w_.exact_inverse) {
      grouped_grad_row<true>(w_, grad, row, out);
    } else {
      grouped_grad_row<false>(w_, grad, row, out);
    }
  }

  Windows w_;
};

// The places of images that lie as `from`. One place for each image and channel lies the same in
// channels_layout and plain.
std::optional<ImagePlanes> places_of(const KernelOperand& from, const KernelOperand& to) {
  auto places = image_planes(to, DType::f32);
  if (!places || from.layout == to.layout) return places;
  if (from.layout != channels_layout || !to.layout.plain()) return {};
  if (places->plane() != 1) return {};
  places->count /= lanes;
  places->inner = lanes;
  return places;
}

kernels::AverageWindows spans_of(const KernelUse& use, const ImagePlanes& from,
                                 const ImagePlanes& to) {
  const Shape field = {from.height, from.width}, places = {to.height, to.width};
  if (!use.attrs.has("kernel_size")) return kernels::adaptive_windows(field, places);
  const auto both = [&](std::string_view name, std::span<const int64_t> missing) {
    ScratchShape values = scratch_copy(use.attrs.integers(name));
    if (values.empty()) values = scratch_copy(missing);
    values.resize(2, values[0]);
    return values;
  };
  kernels::PoolParams params;
  params.kernel = both("kernel_size", {});
  params.stride = both("stride", params.kernel);  // PyTorch's default
  params.padding = both("padding", std::array<int64_t, 1>{0});
  auto windows = kernels::average_windows(params, field, places);
  windows.count_padding = use.attrs.flag("count_include_pad");
  if (use.attrs.has("divisor_override")) {
    windows.divisor = use.attrs.integer("divisor_override");
  }
  return windows;
}

double divisor_of(const kernels::AverageWindows& w, const kernels::AverageWindows::Span& row,
                  const kernels::AverageWindows::Span& column) {
  if (w.divisor) return static_cast<double>(*w.divisor);
  if (w.count_padding) return static_cast<double>(row.padded * column.padded);
  const int64_t elements = (row.end - row.begin) * (column.end - column.begin);
  return static_cast<double>(std::max<int64_t>(1, elements));  // nothing is 0
}

bool is_power_of_two(double value) {
  int exponent = 0;
  return std::frexp(std::abs(value), &exponent) == 0.5;
}

Windows windows_of(const KernelUse& use, const KernelOperand& from, const KernelOperand& to) {
  Windows w{*image_planes(from, DType::f32), *places_of(from, to), {}, {}, {}};
  const auto all = spans_of(use, w.from, w.to);
  for (size_t d = 0; d < 2; ++d) {
    auto& readers = w.read_by[d];
    readers.resize(static_cast<size_t>(d == 0 ? w.from.height : w.from.width));
    for (const auto& span : all.spans[d + 1]) {
      const auto place = static_cast<int64_t>(w.reads[d].size());
      w.reads[d].push_back({span.begin, std::max(span.begin, span.end)});
      for (int64_t i = span.begin; i < span.end; ++i) {
        Span& by = readers[static_cast<size_t>(i)];
        if (by.size() == 0) by.begin = place;
        by.end = place + 1;
      }
    }
  }
  for (const auto& row : all.spans[1]) {
    for (const auto& column : all.spans[2]) {
      w.divisors.push_back(divisor_of(all, row, column));
      w.exact_inverse = w.exact_inverse && is_power_of_two(w.divisors.back());
    }
  }
  return w;
}

bool fits_together(const KernelOperand& from, const KernelOperand& to) {
  return image_planes(from, DType::f32) && places_of(from, to);
}

bool forward_applies(const KernelUse& use) { return fits_together(use.inputs[0], use.outputs[0]); }

std::unique_ptr<PreparedKernel> prepare_forward(const KernelUse& use) {
  return std::make_unique<AvgPool>(windows_of(use, use.inputs[0], use.outputs[0]));
}

// Where windows of plain images overlap, the reference is as good.
bool backward_applies(const KernelUse& use) {
  if (!fits_together(use.outputs[0], use.inputs[0])) return false;
  if (!use.outputs[0].layout.plain()) return true;
  const Windows w = windows_of(use, use.outputs[0], use.inputs[0]);
  const auto is_shared = [](const Span& readers) { return readers.size() > 1; };
  return std::none_of(w.read_by[0].begin(), w.read_by[0].end(), is_shared);
}

std::unique_ptr<PreparedKernel> prepare_backward(const KernelUse& use) {
  return std::make_unique<AvgPoolGrad>(windows_of(use, use.outputs[0], use.inputs[0]));
}

}  // namespace

std::span<const KernelEntry> avg_pool_entries() {
  static constexpr KernelEntry entries[] = {
      {"avg_pool2d", "avx2_avg_pool", forward_applies, prepare_forward, nullptr, true},
      {"avg_pool2d_backward", "avx2_avg_pool_backward", backward_applies, prepare_backward, nullptr,
       true},
      {"adaptive_avg_pool2d", "avx2_avg_pool", forward_applies, prepare_forward, nullptr, true},
      {"adaptive_avg_pool2d_backward", "avx2_avg_pool_backward", backward_applies, prepare_backward,
       nullptr, true},
  };
  return entries;
}

}  // namespace tessera::cpu
