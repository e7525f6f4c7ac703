// Means and sums over dimensions that lie side by side. The tensor is [outer, size, inner]: rows
// where nothing lies within, otherwise columns, eight at a time and in double precision. Images in
// channels_layout are columns too: their pixels are summed and eight channels lie within.
#include <algorithm>
#include <optional>

#include "tessera/backend/cpu/kernels/dimension_cut.h"
#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/kernels/x86/row_sums.h"
#include "tessera/base/divided_up.h"

namespace tessera::cpu {
namespace {

using namespace avx2;

constexpr int64_t piece_elements = 32768;  // below this waking a thread does not pay
constexpr int64_t block_columns = 64;      // of a column job

TESSERA_AVX2 inline void add_row(__m256 v, __m256d& low, __m256d& high) {
  low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
  high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
}

// Eight columns; of those beyond `mask` nothing is read or written.
template <bool whole>
TESSERA_AVX2 void eight_columns(const float* x, int64_t size, int64_t stride, __m256i mask,
                                double count, float* out) {
  // Additions take four cycles: two chains for each half.
  __m256d low[2], high[2];
  for (int k = 0; k < 2; ++k) low[k] = high[k] = _mm256_setzero_pd();
  int64_t i = 0;
  for (; i + 2 <= size; i += 2) {
    for (int k = 0; k < 2; ++k) add_row(load<whole>(x + (i + k) * stride, mask), low[k], high[k]);
  }
  if (i < size) add_row(load<whole>(x + i * stride, mask), low[0], high[0]);
  const __m256d counts = _mm256_set1_pd(count);
  const __m256d first = _mm256_div_pd(_mm256_add_pd(low[0], low[1]), counts);
  const __m256d second = _mm256_div_pd(_mm256_add_pd(high[0], high[1]), counts);
  store<whole>(out, mask, _mm256_set_m128(_mm256_cvtpd_ps(second), _mm256_cvtpd_ps(first)));
}

// mean(self) or, with a count of 1, sum(self)
class MeansKernel : public PreparedKernel {
 public:
  MeansKernel(const DimensionCut& cut, double count) : cut_(cut), count_(count) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    const float* x = call.inputs[0].as<float>();
    float* out = call.outputs[0].as<float>();
    const int64_t columns = std::min(block_columns, cut_.inner);
    const int64_t blocks = divided_up(cut_.inner, columns);
    const int64_t grain = std::max<int64_t>(1, piece_elements / (cut_.size * columns));
    call.pool.run_ranges(cut_.outer * blocks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / blocks, first = i % blocks * columns;
        const float* from = x + row * cut_.size * cut_.inner + first;
        float* to = out + row * cut_.inner + first;
        if (cut_.inner == 1) {
          *to = static_cast<float>(sum_of(from, cut_.size) / count_);
        } else {
          block(from, std::min(columns, cut_.inner - first), to);
        }
      }
    });
  }

 private:
  TESSERA_AVX2 void block(const float* x, int64_t columns, float* out) const {
    int64_t i = 0;
    for (; i + lanes <= columns; i += lanes) {
      eight_columns<true>(x + i, cut_.size, cut_.inner, __m256i{}, count_, out + i);
    }
    if (i == columns) return;
    eight_columns<false>(x + i, cut_.size, cut_.inner, mask_of(columns - i), count_, out + i);
  }

  DimensionCut cut_;
  double count_;
};

// Nothing where the folded dimensions do not lie side by side, or in other layouts.
std::optional<DimensionCut> cut_of(const KernelUse& use) {
  const KernelOperand& x = use.inputs[0];
  const Shape& shape = x.geometry.shape;
  const auto rank = static_cast<int64_t>(shape.size() - x.layout.cut.size());
  if (rank == 0 || !use.attrs.find("dim")) return {};
  std::vector<int64_t> dims = use.attrs.integers("dim");
  for (int64_t& dim : dims) dim = wrap_dim(dim, rank);
  std::sort(dims.begin(), dims.end());
  if (dims.empty() || dims.back() - dims.front() + 1 != static_cast<int64_t>(dims.size())) {
    return {};
  }
  const bool blocked = !x.layout.plain();
  if (blocked && (x.layout != channels_layout || dims.front() < 2)) return {};
  DimensionCut cut;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    const int64_t size = shape[static_cast<size_t>(d)];
    const bool folded = d >= dims.front() && d <= dims.back();
    // The result is plain. With pixels left in it, its channels would lie otherwise.
    if (blocked && !folded && d >= 2 && d < rank && size != 1) return {};
    (folded ? cut.size : d < dims.front() ? cut.outer : cut.inner) *= size;
  }
  return cut;
}

bool applies(const KernelUse& use) {
  const KernelOperand& x = use.inputs[0];
  const KernelOperand& out = use.outputs[0];
  return x.dtype == DType::f32 && out.dtype == DType::f32 && out.layout.plain() &&
         numel(x.geometry.shape) > 0 && same_elements(x.geometry, dense(x.geometry.shape)) &&
         cut_of(use);
}

template <bool mean>
std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  const DimensionCut cut = *cut_of(use);
  return std::make_unique<MeansKernel>(cut, mean ? static_cast<double>(cut.size) : 1);
}

}  // namespace

std::span<const KernelEntry> means_entries() {
  static constexpr KernelEntry entries[] = {
      {"mean", "avx2_mean", applies, prepare<true>, nullptr, true},
      {"sum", "avx2_sum", applies, prepare<false>, nullptr, true},
  };
  return entries;
}

}  // namespace tessera::cpu
