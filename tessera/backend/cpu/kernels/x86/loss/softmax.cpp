// Softmax, its logarithm and their gradients, over the last dimension (eight elements of a row at a
// time) or over another (eight neighbouring columns at a time: the classes of pixels). Results
// are within 3e-7 of the reference's, gradients within 1e-6, relative to the largest.
#include <algorithm>
#include <cmath>

#include "tessera/backend/cpu/kernels/after_copies.h"
#include "tessera/backend/cpu/kernels/dimension_cut.h"
#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/kernels/x86/avx2.h"

namespace tessera::cpu {
namespace {

using namespace avx2;

constexpr int64_t piece_elements = 8192;
constexpr int64_t block_columns = 256;  // of a column job

enum class Function { softmax, log_softmax };

template <Function function>
TESSERA_AVX2 void forward_row(const float* x, int64_t size, float* out) {
  const int64_t whole = size / lanes * lanes;
  const __m256i mask = mask_of(size - whole);
  __m256 best = whole < size ? load_or_lowest(x + whole, mask) : lowest();
  for (int64_t i = 0; i < whole; i += lanes) best = _mm256_max_ps(best, _mm256_loadu_ps(x + i));
  // A NaN may be lost here; the sum finds it again.
  const __m256 largest = _mm256_set1_ps(largest_of_lanes(best));
  __m256 sums = _mm256_setzero_ps();
  for (int64_t i = 0; i < whole; i += lanes) {
    const __m256 e = exp_of(_mm256_sub_ps(_mm256_loadu_ps(x + i), largest));
    if (function == Function::softmax) _mm256_storeu_ps(out + i, e);
    sums = _mm256_add_ps(sums, e);
  }
  if (whole < size) {
    __m256 e = exp_of(_mm256_sub_ps(_mm256_maskload_ps(x + whole, mask), largest));
    e = _mm256_and_ps(e, _mm256_castsi256_ps(mask));
    if (function == Function::softmax) _mm256_maskstore_ps(out + whole, mask, e);
    sums = _mm256_add_ps(sums, e);
  }
  const float sum = sum_of_lanes(sums);
  if (function == Function::softmax) {
    const __m256 scale = _mm256_set1_ps(1 / sum);
    for (int64_t i = 0; i < whole; i += lanes) {
      _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_loadu_ps(out + i), scale));
    }
    if (whole < size) {
      const __m256 e = _mm256_maskload_ps(out + whole, mask);
      _mm256_maskstore_ps(out + whole, mask, _mm256_mul_ps(e, scale));
    }
    return;
  }
  const __m256 log_sum = _mm256_set1_ps(std::log(sum));
  for (int64_t i = 0; i < whole; i += lanes) {
    const __m256 distance = _mm256_sub_ps(_mm256_loadu_ps(x + i), largest);
    _mm256_storeu_ps(out + i, _mm256_sub_ps(distance, log_sum));
  }
  if (whole < size) {
    const __m256 distance = _mm256_sub_ps(_mm256_maskload_ps(x + whole, mask), largest);
    _mm256_maskstore_ps(out + whole, mask, _mm256_sub_ps(distance, log_sum));
  }
}

template <Function function, bool whole>
TESSERA_AVX2 inline __m256 term(const float* g, const float* y, __m256i mask) {
  const __m256 grad = load<whole>(g, mask);
  return function == Function::softmax ? _mm256_mul_ps(grad, load<whole>(y, mask)) : grad;
}

template <Function function, bool whole>
TESSERA_AVX2 inline void store_grad(const float* g, const float* y, __m256 sum, __m256i mask,
                                    float* out) {
  const __m256 grad = load<whole>(g, mask), result = load<whole>(y, mask);
  store<whole>(out, mask,
               function == Function::softmax ? _mm256_mul_ps(_mm256_sub_ps(grad, sum), result)
                                             : _mm256_fnmadd_ps(exp_of_any(result), sum, grad));
}

template <Function function>
TESSERA_AVX2 void backward_row(const float* g, const float* y, int64_t size, float* out) {
  const int64_t whole = size / lanes * lanes;
  const __m256i mask = mask_of(size - whole);
  __m256 sums = term<function, false>(g + whole, y + whole, mask);
  for (int64_t i = 0; i < whole; i += lanes) {
    sums = _mm256_add_ps(sums, term<function, true>(g + i, y + i, mask));
  }
  const __m256 sum = _mm256_set1_ps(sum_of_lanes(sums));
  for (int64_t i = 0; i < whole; i += lanes) {
    store_grad<function, true>(g + i, y + i, sum, mask, out + i);
  }
  if (whole < size) {
    store_grad<function, false>(g + whole, y + whole, sum, mask, out + whole);
  }
}

// Eight columns, elements of one `stride` apart.
template <Function function, bool whole>
TESSERA_AVX2 void forward_columns(const float* x, int64_t size, int64_t stride, __m256i mask,
                                  float* out) {
  __m256 largest = lowest();
  for (int64_t d = 0; d < size; ++d) {
    largest = _mm256_max_ps(largest, load<whole>(x + d * stride, mask));
  }
  __m256 sum = _mm256_setzero_ps();
  for (int64_t d = 0; d < size; ++d) {
    const __m256 e = exp_of(_mm256_sub_ps(load<whole>(x + d * stride, mask), largest));
    if (function == Function::softmax) store<whole>(out + d * stride, mask, e);
    sum = _mm256_add_ps(sum, e);
  }
  if (function == Function::softmax) {
    const __m256 scale = _mm256_div_ps(_mm256_set1_ps(1), sum);
    for (int64_t d = 0; d < size; ++d) {
      store<whole>(out + d * stride, mask,
                   _mm256_mul_ps(load<whole>(out + d * stride, mask), scale));
    }
    return;
  }
  const __m256 log_sum = log_of(sum);
  for (int64_t d = 0; d < size; ++d) {
    const __m256 distance = _mm256_sub_ps(load<whole>(x + d * stride, mask), largest);
    store<whole>(out + d * stride, mask, _mm256_sub_ps(distance, log_sum));
  }
}

template <Function function, bool whole>
TESSERA_AVX2 void backward_columns(const float* g, const float* y, int64_t size, int64_t stride,
                                   __m256i mask, float* out) {
  __m256 sum = _mm256_setzero_ps();
  for (int64_t d = 0; d < size; ++d) {
    sum = _mm256_add_ps(sum, term<function, whole>(g + d * stride, y + d * stride, mask));
  }
  for (int64_t d = 0; d < size; ++d) {
    store_grad<function, whole>(g + d * stride, y + d * stride, sum, mask, out + d * stride);
  }
}

// _softmax(self), _softmax_backward_data(grad, output), and the same of logarithms.
template <Function function, bool backward>
class SoftmaxKernel : public PreparedKernel {
 public:
  explicit SoftmaxKernel(const DimensionCut& cut) : cut_(cut) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    run_blocks(call.pool, cut_, block_columns, piece_elements,
               [&](int64_t outer, int64_t first, int64_t columns) {
                 block(call, outer * cut_.size * cut_.inner + first, columns);
               });
  }

 private:
  TESSERA_AVX2 void block(const KernelCall& call, int64_t at, int64_t columns) const {
    const float* x = call.inputs[0].as<float>() + at;
    const float* y = call.inputs[backward ? 1 : 0].as<float>() + at;
    float* out = call.outputs[0].as<float>() + at;
    if (cut_.inner == 1) {
      if constexpr (backward) {
        backward_row<function>(x, y, cut_.size, out);
      } else {
        forward_row<function>(x, cut_.size, out);
      }
      return;
    }
    int64_t i = 0;
    for (; i + lanes <= columns; i += lanes) {
      if constexpr (backward) {
        backward_columns<function, true>(x + i, y + i, cut_.size, cut_.inner, __m256i{}, out + i);
      } else {
        forward_columns<function, true>(x + i, cut_.size, cut_.inner, __m256i{}, out + i);
      }
    }
    if (i == columns) return;
    const __m256i mask = mask_of(columns - i);
    if constexpr (backward) {
      backward_columns<function, false>(x + i, y + i, cut_.size, cut_.inner, mask, out + i);
    } else {
      forward_columns<function, false>(x + i, cut_.size, cut_.inner, mask, out + i);
    }
  }

  DimensionCut cut_;
};

bool is_plain(const KernelOperand& operand) {
  return operand.layout.plain() && operand.dtype == DType::f32 &&
         same_elements(operand.geometry, dense(operand.geometry.shape));
}

bool applies(const KernelUse& use) {
  const Shape& shape = use.outputs[0].geometry.shape;
  if (shape.empty() || numel(shape) == 0 || !is_plain(use.outputs[0])) return false;
  const auto is_operand = [&](const KernelOperand& operand) {
    return is_plain(operand) && operand.geometry.shape == shape;
  };
  return std::all_of(use.inputs.begin(), use.inputs.end(), is_operand);
}

template <Function function, bool backward>
std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  const DimensionCut cut = cut_around(use.outputs[0].geometry.shape, use.attrs.integer("dim"));
  return std::make_unique<SoftmaxKernel<function, backward>>(cut);
}

}  // namespace

std::span<const KernelEntry> softmax_entries() {
  static constexpr KernelEntry entries[] = {
      {"_softmax", "avx2_softmax", applies, prepare<Function::softmax, false>},
      {"_log_softmax", "avx2_log_softmax", applies, prepare<Function::log_softmax, false>},
      {"_softmax_backward_data", "avx2_softmax_backward", applies,
       prepare<Function::softmax, true>},
      {"_log_softmax_backward_data", "avx2_log_softmax_backward", applies,
       prepare<Function::log_softmax, true>},
      {"_softmax", "copies_avx2_softmax", applies_after_copies<applies>,
       prepare_after_copies<prepare<Function::softmax, false>>},
      {"_log_softmax", "copies_avx2_log_softmax", applies_after_copies<applies>,
       prepare_after_copies<prepare<Function::log_softmax, false>>},
      {"_softmax_backward_data", "copies_avx2_softmax_backward", applies_after_copies<applies>,
       prepare_after_copies<prepare<Function::softmax, true>>},
      {"_log_softmax_backward_data", "copies_avx2_log_softmax_backward",
       applies_after_copies<applies>, prepare_after_copies<prepare<Function::log_softmax, true>>},
  };
  return entries;
}

}  // namespace tessera::cpu
