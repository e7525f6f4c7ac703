// The largest or smallest element along a dimension and where it is first, eight neighbouring
// columns at a time: the class of every pixel. Rows stay with the reference, which is quick there.
#include <algorithm>

#include "tessera/backend/cpu/kernels/after_copies.h"
#include "tessera/backend/cpu/kernels/dimension_cut.h"
#include "tessera/backend/cpu/kernels/x86/avx2.h"

namespace tessera::cpu {
namespace {

using namespace avx2;

constexpr int64_t piece_elements = 16384;  // below this waking a thread does not pay
constexpr int64_t block_columns = 256;

enum class Wanted { largest, smallest };

// NaN wins, and the first of equal ones.
template <Wanted wanted>
TESSERA_AVX2 inline __m256 beats(__m256 x, __m256 best) {
  constexpr int order = wanted == Wanted::largest ? _CMP_GT_OQ : _CMP_LT_OQ;
  const __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  const __m256 is_number = _mm256_cmp_ps(best, best, _CMP_ORD_Q);
  return _mm256_or_ps(_mm256_cmp_ps(x, best, order), _mm256_and_ps(is_nan, is_number));
}

// Eight columns; of those beyond `mask` nothing is read or written. `values` may be null.
template <Wanted wanted, bool whole>
TESSERA_AVX2 void eight_columns(const float* x, const DimensionCut& cut, __m256i mask,
                                float* values, int32_t* places) {
  __m256 best = load<whole>(x, mask), place = _mm256_setzero_ps();
  for (int64_t i = 1; i < cut.size; ++i) {
    const __m256 next = load<whole>(x + i * cut.inner, mask);
    const __m256 better = beats<wanted>(next, best);
    const __m256 here = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(i)));
    best = _mm256_blendv_ps(best, next, better);
    place = _mm256_blendv_ps(place, here, better);
  }
  if (values) store<whole>(values, mask, best);
  store<whole>(reinterpret_cast<float*>(places), mask, place);
}

// argmax(self) -> places; max(self) -> values, places
template <Wanted wanted>
class Extremes : public PreparedKernel {
 public:
  explicit Extremes(const DimensionCut& cut) : cut_(cut) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    run_blocks(
        call.pool, cut_, block_columns, piece_elements,
        [&](int64_t outer, int64_t first, int64_t columns) { block(call, outer, first, columns); });
  }

 private:
  TESSERA_AVX2 void block(const KernelCall& call, int64_t outer, int64_t first,
                          int64_t columns) const {
    const int64_t at = outer * cut_.inner + first;
    const float* x = call.inputs[0].as<float>() + outer * cut_.size * cut_.inner + first;
    float* values = call.outputs.size() > 1 ? call.outputs[0].as<float>() + at : nullptr;
    int32_t* places = call.outputs.back().as<int32_t>() + at;
    for (int64_t i = 0; i < columns; i += lanes) {
      float* to = values ? values + i : nullptr;
      if (i + lanes <= columns) {
        eight_columns<wanted, true>(x + i, cut_, __m256i{}, to, places + i);
      } else {
        eight_columns<wanted, false>(x + i, cut_, mask_of(columns - i), to, places + i);
      }
    }
  }

  DimensionCut cut_;
};

DimensionCut cut_of(const KernelUse& use) {
  return cut_around(use.inputs[0].geometry.shape, use.attrs.integer("dim"));
}

bool applies(const KernelUse& use) {
  const KernelOperand& x = use.inputs[0];
  const Shape& shape = x.geometry.shape;
  if (!use.attrs.has("dim") || shape.empty() || numel(shape) == 0) return false;
  const auto is_plain = [](const KernelOperand& operand) { return operand.layout.plain(); };
  return is_plain(x) && x.dtype == DType::f32 && same_elements(x.geometry, dense(shape)) &&
         std::all_of(use.outputs.begin(), use.outputs.end(), is_plain) &&
         use.outputs.back().dtype == DType::i32 && cut_of(use).inner >= lanes;
}

template <Wanted wanted>
std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  return std::make_unique<Extremes<wanted>>(cut_of(use));
}

template <Wanted wanted>
constexpr KernelEntry entry(std::string_view op) {
  return {op, "avx2_extremes", applies, prepare<wanted>};
}
template <Wanted wanted>
constexpr KernelEntry copying_entry(std::string_view op) {
  return {op, "copies_avx2_extremes", applies_after_copies<applies>,
          prepare_after_copies<prepare<wanted>>};
}

}  // namespace

std::span<const KernelEntry> extremes_entries() {
  static constexpr KernelEntry entries[] = {
      entry<Wanted::largest>("argmax"),          entry<Wanted::largest>("max"),
      entry<Wanted::smallest>("argmin"),         entry<Wanted::smallest>("min"),
      copying_entry<Wanted::largest>("argmax"),  copying_entry<Wanted::largest>("max"),
      copying_entry<Wanted::smallest>("argmin"), copying_entry<Wanted::smallest>("min"),
  };
  return entries;
}

}  // namespace tessera::cpu
