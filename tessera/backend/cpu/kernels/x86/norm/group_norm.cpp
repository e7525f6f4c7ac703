// Group norm of plain images and its gradient. The channels of a group lie side by side, so its
// statistics are those of one long row.
#include <algorithm>
#include <cmath>

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/kernels/x86/row_sums.h"

namespace tessera::cpu {
namespace {

using namespace avx2;

constexpr int64_t piece_elements = 16384;  // below this waking a thread does not pay

struct Groups {
  int64_t batch = 0, channels = 0, groups = 0, plane = 0;

  int64_t count() const { return batch * groups; }
  int64_t members() const { return channels / groups; }
  int64_t size() const { return members() * plane; }
  int64_t grain() const { return std::max<int64_t>(1, piece_elements / size()); }
};

float parameter(const KernelCall& call, size_t operand, int64_t channel, float missing) {
  return call.has_input(operand) ? call.inputs[operand].as<float>()[channel] : missing;
}

TESSERA_AVX2 void scale_and_shift(const float* x, int64_t size, float center, float scale,
                                  float shift, float* out) {
  const __m256 centers = _mm256_set1_ps(center), scales = _mm256_set1_ps(scale);
  const __m256 shifts = _mm256_set1_ps(shift);
  int64_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    const __m256 distance = _mm256_sub_ps(_mm256_loadu_ps(x + i), centers);
    _mm256_storeu_ps(out + i, _mm256_fmadd_ps(distance, scales, shifts));
  }
  if (i == size) return;
  const __m256i mask = mask_of(size - i);
  const __m256 distance = _mm256_sub_ps(_mm256_maskload_ps(x + i, mask), centers);
  _mm256_maskstore_ps(out + i, mask, _mm256_fmadd_ps(distance, scales, shifts));
}

// group_norm(input, weight?, bias?) -> out, mean, rstd
class GroupNorm : public PreparedKernel {
 public:
  GroupNorm(const Groups& groups, double eps) : g_(groups), eps_(eps) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    call.pool.run_ranges(g_.count(), g_.grain(), [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) one(call, group);
    });
  }

 private:
  void one(const KernelCall& call, int64_t group) const {
    const float* x = call.inputs[0].as<float>() + group * g_.size();
    float* out = call.outputs[0].as<float>() + group * g_.size();
    const RowMoments moments = moments_of(x, g_.size());
    const double rstd = 1 / std::sqrt(moments.variance + eps_);
    call.outputs[1].as<float>()[group] = moments.mean;
    call.outputs[2].as<float>()[group] = static_cast<float>(rstd);
    for (int64_t member = 0; member < g_.members(); ++member) {
      const int64_t channel = group % g_.groups * g_.members() + member;
      const auto scale = static_cast<float>(rstd * parameter(call, 1, channel, 1));
      scale_and_shift(x + member * g_.plane, g_.plane, moments.mean, scale,
                      parameter(call, 2, channel, 0), out + member * g_.plane);
    }
  }

  Groups g_;
  double eps_;
};

// (g * weight - grad_mean - (x - center) * slope) * rstd
struct Slopes {
  float weight, grad_mean, center, slope, rstd;
};

template <bool whole>
TESSERA_AVX2 inline void input_grad(const float* g, const float* x, const Slopes& s, __m256i mask,
                                    float* out) {
  const __m256 distance = _mm256_sub_ps(load<whole>(x, mask), _mm256_set1_ps(s.center));
  const __m256 own =
      _mm256_fmsub_ps(load<whole>(g, mask), _mm256_set1_ps(s.weight), _mm256_set1_ps(s.grad_mean));
  const __m256 y = _mm256_fnmadd_ps(distance, _mm256_set1_ps(s.slope), own);
  store<whole>(out, mask, _mm256_mul_ps(y, _mm256_set1_ps(s.rstd)));
}

TESSERA_AVX2 void input_grad_row(const float* g, const float* x, int64_t size, const Slopes& s,
                                 float* out) {
  int64_t i = 0;
  for (; i + lanes <= size; i += lanes) input_grad<true>(g + i, x + i, s, __m256i{}, out + i);
  if (i < size) input_grad<false>(g + i, x + i, s, mask_of(size - i), out + i);
}

// group_norm_backward(grad_out, input, mean, rstd, weight?) -> three gradients
class GroupNormGrad : public PreparedKernel {
 public:
  GroupNormGrad(const Groups& groups, const std::vector<int64_t>& mask) : g_(groups) {
    for (size_t i = 0; i < 3; ++i) wanted_[i] = mask[i] != 0;
  }

  // Of every plane: the sum of the gradient, and of the gradient times the normalised input.
  int64_t workspace_bytes() const override {
    return g_.batch * g_.channels * static_cast<int64_t>(sizeof(GradSums));
  }

  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    auto* planes = reinterpret_cast<GradSums*>(workspace.data());
    call.pool.run_ranges(g_.count(), g_.grain(), [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) one(call, group, planes);
    });
    for (int64_t channel = 0; channel < g_.channels; ++channel) {
      GradSums all;
      for (int64_t image = 0; image < g_.batch; ++image) {
        all.sum += planes[image * g_.channels + channel].sum;
        all.dot += planes[image * g_.channels + channel].dot;
      }
      call.outputs[1].as<float>()[channel] = wanted_[1] ? static_cast<float>(all.dot) : 0;
      call.outputs[2].as<float>()[channel] = wanted_[2] ? static_cast<float>(all.sum) : 0;
    }
    if (wanted_[0]) return;
    std::fill_n(call.outputs[0].as<float>(), call.outputs[0].numel(), 0.0F);
  }

 private:
  void one(const KernelCall& call, int64_t group, GradSums* planes) const {
    const float* g = call.inputs[0].as<float>();
    const float* x = call.inputs[1].as<float>();
    const float center = call.inputs[2].as<float>()[group];
    const float rstd = call.inputs[3].as<float>()[group];
    const int64_t first = group * g_.members();
    GradSums all;
    for (int64_t plane = first; plane < first + g_.members(); ++plane) {
      GradSums& own = planes[plane];
      own = grad_sums<false>(g + plane * g_.plane, x + plane * g_.plane, nullptr, g_.plane, center);
      own.dot *= rstd;
      const double weight = parameter(call, 4, plane % g_.channels, 1);
      all.sum += weight * own.sum;
      all.dot += weight * own.dot;
    }
    if (!wanted_[0]) return;
    const auto count = static_cast<double>(g_.size());
    Slopes slopes{1, static_cast<float>(all.sum / count), center,
                  static_cast<float>(all.dot * rstd / count), rstd};
    for (int64_t plane = first; plane < first + g_.members(); ++plane) {
      slopes.weight = parameter(call, 4, plane % g_.channels, 1);
      input_grad_row(g + plane * g_.plane, x + plane * g_.plane, g_.plane, slopes,
                     call.outputs[0].as<float>() + plane * g_.plane);
    }
  }

  Groups g_;
  bool wanted_[3] = {};
};

bool is_plain(const KernelOperand& x) {
  return !x.present || (x.layout.plain() && x.dtype == DType::f32 &&
                        same_elements(x.geometry, dense(x.geometry.shape)));
}

bool applies(const KernelUse& use) {
  return std::all_of(use.inputs.begin(), use.inputs.end(), is_plain) &&
         std::all_of(use.outputs.begin(), use.outputs.end(), is_plain) &&
         numel(use.outputs[0].geometry.shape) > 0;
}

Groups groups_of(const KernelUse& use) {
  Groups g{use.attrs.integer("N"), use.attrs.integer("C"), use.attrs.integer("group")};
  g.plane = numel(use.outputs[0].geometry.shape) / (g.batch * g.channels);
  return g;
}

std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  return std::make_unique<GroupNorm>(groups_of(use), use.attrs.number("eps"));
}

std::unique_ptr<PreparedKernel> prepare_grad(const KernelUse& use) {
  return std::make_unique<GroupNormGrad>(groups_of(use), use.attrs.integers("output_mask"));
}

}  // namespace

std::span<const KernelEntry> group_norm_entries() {
  static constexpr KernelEntry entries[] = {
      {"group_norm", "avx2_group_norm", applies, prepare},
      {"group_norm_backward", "avx2_group_norm_backward", applies, prepare_grad},
  };
  return entries;
}

}  // namespace tessera::cpu
