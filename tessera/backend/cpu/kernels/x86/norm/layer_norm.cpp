// Layer norm and its gradient. A row stays in the first cache while it is summed, summed again for
// its variance and written. The gradients of weight and bias are summed over fixed pieces of rows
// beside it, and the pieces in order. Statistics agree with the reference's to single precision.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/kernels/x86/row_sums.h"
#include "tessera/base/divided_up.h"

namespace tessera::cpu {
namespace {

using namespace avx2;

constexpr int64_t piece_elements = 8192;  // about; of a row times the rows of a piece
constexpr int64_t most_pieces = 64;       // of the gradient: each has its own sums

struct Rows {
  int64_t count = 0, size = 0;
};

template <bool whole>
TESSERA_AVX2 inline void normalize(const float* x, const float* weight, const float* bias,
                                   __m256 center, __m256 scale, __m256i mask, float* out) {
  __m256 y = _mm256_mul_ps(_mm256_sub_ps(load<whole>(x, mask), center), scale);
  if (weight) y = _mm256_mul_ps(y, load<whole>(weight, mask));
  if (bias) y = _mm256_add_ps(y, load<whole>(bias, mask));
  store<whole>(out, mask, y);
}

TESSERA_AVX2 void normalize_row(const float* x, const float* weight, const float* bias,
                                float center, float scale, int64_t size, float* out) {
  const __m256 centers = _mm256_set1_ps(center), scales = _mm256_set1_ps(scale);
  const auto at = [](const float* p, int64_t i) { return p ? p + i : nullptr; };
  int64_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    normalize<true>(x + i, at(weight, i), at(bias, i), centers, scales, __m256i{}, out + i);
  }
  if (i == size) return;
  normalize<false>(x + i, at(weight, i), at(bias, i), centers, scales, mask_of(size - i), out + i);
}

const float* optional(const KernelCall& call, size_t i) {
  return call.has_input(i) ? call.inputs[i].as<float>() : nullptr;
}

// layer_norm(input, weight?, bias?) -> out, mean, rstd
class LayerNorm : public PreparedKernel {
 public:
  LayerNorm(Rows rows, double eps) : rows_(rows), eps_(eps) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    const int64_t grain = std::max<int64_t>(1, 2 * piece_elements / rows_.size);
    call.pool.run_ranges(rows_.count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* x = call.inputs[0].as<float>() + row * rows_.size;
        const RowMoments moments = moments_of(x, rows_.size);
        const auto scale = static_cast<float>(1 / std::sqrt(moments.variance + eps_));
        call.outputs[1].as<float>()[row] = moments.mean;
        call.outputs[2].as<float>()[row] = scale;
        normalize_row(x, optional(call, 1), optional(call, 2), moments.mean, scale, rows_.size,
                      call.outputs[0].as<float>() + row * rows_.size);
      }
    });
  }

 private:
  Rows rows_;
  double eps_;
};

// What the gradient of a row is made of.
struct GradRow {
  const float *grad, *x, *weight;
  float center, rstd, grad_mean, slope;
  float* out;
  float *weight_grad, *bias_grad;  // null: not wanted
};

template <bool whole>
TESSERA_AVX2 inline void write_grad(const GradRow& row, int64_t i, __m256i mask) {
  const __m256 g = load<whole>(row.grad + i, mask);
  const __m256 distance = _mm256_sub_ps(load<whole>(row.x + i, mask), _mm256_set1_ps(row.center));
  const __m256 rstd = _mm256_set1_ps(row.rstd);
  if (row.weight_grad) {
    const __m256 sum = load<whole>(row.weight_grad + i, mask);
    store<whole>(row.weight_grad + i, mask, _mm256_fmadd_ps(g, _mm256_mul_ps(distance, rstd), sum));
    store<whole>(row.bias_grad + i, mask, _mm256_add_ps(load<whole>(row.bias_grad + i, mask), g));
  }
  __m256 y = row.weight ? _mm256_mul_ps(g, load<whole>(row.weight + i, mask)) : g;
  y = _mm256_sub_ps(y, _mm256_set1_ps(row.grad_mean));
  y = _mm256_fnmadd_ps(distance, _mm256_set1_ps(row.slope), y);
  store<whole>(row.out + i, mask, _mm256_mul_ps(y, rstd));
}

TESSERA_AVX2 void write_grad_row(const GradRow& row, int64_t size) {
  int64_t i = 0;
  for (; i + lanes <= size; i += lanes) write_grad<true>(row, i, __m256i{});
  if (i < size) write_grad<false>(row, i, mask_of(size - i));
}

// layer_norm_backward(grad_out, input, mean, rstd, weight?, bias?) -> three gradients
class LayerNormGrad : public PreparedKernel {
 public:
  LayerNormGrad(Rows rows, bool weight_wanted, bool bias_wanted)
      : rows_(rows), weight_wanted_(weight_wanted), bias_wanted_(bias_wanted) {
    grain_ =
        std::max({int64_t{1}, piece_elements / rows_.size, divided_up(rows_.count, most_pieces)});
    pieces_ = divided_up(rows_.count, grain_);
  }

  int64_t workspace_bytes() const override {
    if (!weight_wanted_ && !bias_wanted_) return 0;
    return pieces_ * 2 * rows_.size * static_cast<int64_t>(sizeof(float));
  }

  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    auto* sums = workspace.empty() ? nullptr : reinterpret_cast<float*>(workspace.data());
    call.pool.run(pieces_, [&](int64_t piece) {
      float* own = sums ? sums + piece * 2 * rows_.size : nullptr;
      if (own) std::fill_n(own, 2 * rows_.size, 0.0F);
      const int64_t end = std::min(rows_.count, (piece + 1) * grain_);
      for (int64_t row = piece * grain_; row < end; ++row) one_row(call, row, own);
    });
    add_pieces(sums, weight_wanted_, call.outputs[1].as<float>());
    add_pieces(sums ? sums + rows_.size : nullptr, bias_wanted_, call.outputs[2].as<float>());
  }

 private:
  void one_row(const KernelCall& call, int64_t index, float* sums) const {
    GradRow row;
    row.grad = call.inputs[0].as<float>() + index * rows_.size;
    row.x = call.inputs[1].as<float>() + index * rows_.size;
    row.weight = optional(call, 4);
    row.center = call.inputs[2].as<float>()[index];
    row.rstd = call.inputs[3].as<float>()[index];
    const GradSums all = row.weight
                             ? grad_sums<true>(row.grad, row.x, row.weight, rows_.size, row.center)
                             : grad_sums<false>(row.grad, row.x, nullptr, rows_.size, row.center);
    const auto count = static_cast<double>(rows_.size);
    row.grad_mean = static_cast<float>(all.sum / count);
    row.slope = static_cast<float>(all.dot * row.rstd * row.rstd / count);
    row.out = call.outputs[0].as<float>() + index * rows_.size;
    row.weight_grad = sums;
    row.bias_grad = sums ? sums + rows_.size : nullptr;
    write_grad_row(row, rows_.size);
  }

  // Zeros where nobody wants the gradient.
  void add_pieces(const float* sums, bool wanted, float* out) const {
    std::fill_n(out, rows_.size, 0.0F);
    if (!wanted) return;
    for (int64_t piece = 0; piece < pieces_; ++piece) {
      const float* own = sums + piece * 2 * rows_.size;
      for (int64_t i = 0; i < rows_.size; ++i) out[i] += own[i];
    }
  }

  Rows rows_;
  bool weight_wanted_, bias_wanted_;
  int64_t grain_ = 1, pieces_ = 1;
};

bool is_plain(const KernelOperand& x) {
  return !x.present || (x.layout.plain() && x.dtype == DType::f32 &&
                        same_elements(x.geometry, dense(x.geometry.shape)));
}

bool all_plain(const KernelUse& use) {
  return std::all_of(use.inputs.begin(), use.inputs.end(), is_plain) &&
         std::all_of(use.outputs.begin(), use.outputs.end(), is_plain) &&
         numel(use.outputs[0].geometry.shape) > 0;
}

Rows rows_of(const KernelUse& use) {
  const int64_t size = numel(use.attrs.integers("normalized_shape"));
  return {numel(use.outputs[0].geometry.shape) / size, size};
}

std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  return std::make_unique<LayerNorm>(rows_of(use), use.attrs.number("eps"));
}

// Without a gradient of the input the reference does less.
bool grad_applies(const KernelUse& use) {
  return all_plain(use) && use.attrs.integers("output_mask")[0] != 0;
}

std::unique_ptr<PreparedKernel> prepare_grad(const KernelUse& use) {
  const auto& mask = use.attrs.integers("output_mask");
  return std::make_unique<LayerNormGrad>(rows_of(use), mask[1] != 0, mask[2] != 0);
}

}  // namespace

std::span<const KernelEntry> layer_norm_entries() {
  static constexpr KernelEntry entries[] = {
      {"layer_norm", "avx2_layer_norm", all_plain, prepare},
      {"layer_norm_backward", "avx2_layer_norm_backward", grad_applies, prepare_grad},
  };
  return entries;
}

}  // namespace tessera::cpu
