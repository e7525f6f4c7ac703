#include "tessera/backend/cpu/kernels/x86/update.h"

#include <algorithm>
#include <cmath>

#include "tessera/backend/cpu/kernels/x86/update_rules.h"
#include "tessera/base/error.h"
#include "tessera/ops/optimizer_parts.h"

namespace tessera::cpu {
namespace {

using namespace optimizer_parts;
using namespace update_rules;

// About 5 us of work.
constexpr int64_t elements_per_piece = 16 << 10;

float rounded(const KernelCall& call, size_t operand) {
  return static_cast<float>(number(call, operand));
}

// Where gradients come from: memory, or the row of an outer product. Whole vectors and `mask`ed
// ones.
struct StoredGradient {
  const float* values;

  TESSERA_AVX2 __m256 at(int64_t i) const { return _mm256_loadu_ps(values + i); }
  TESSERA_AVX2 __m256 at(int64_t i, __m256i mask) const {
    return _mm256_maskload_ps(values + i, mask);
  }
};

struct OuterGradient {
  float factor;
  const float* row;

  // Added to 0 as a product of matrices is: -0 becomes 0.
  TESSERA_AVX2 __m256 times(__m256 values) const {
    return _mm256_fmadd_ps(all(factor), values, _mm256_setzero_ps());
  }
  TESSERA_AVX2 __m256 at(int64_t i) const { return times(_mm256_loadu_ps(row + i)); }
  TESSERA_AVX2 __m256 at(int64_t i, __m256i mask) const {
    return times(_mm256_maskload_ps(row + i, mask));
  }
};

// `rule` makes vectors of results from vectors of operands, of which the gradient is the second; it
// is not looked at in `in`, and the parameter the first result. All by value: what is only referred
// to would be read anew after every store.
template <size_t In, size_t Out, typename Rule, typename Gradient>
TESSERA_AVX2 void sweep(const Rule rule, const Gradient gradient,
                        const std::array<const float*, In> in, const std::array<float*, Out> out,
                        int64_t count) {
  __m256 x[In], y[Out];
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (size_t k = 0; k < In; ++k) x[k] = k == grad ? gradient.at(i) : _mm256_loadu_ps(in[k] + i);
    rule(x, y);
    _mm256_storeu_ps(out[0] + i, y[0]);
    for (size_t k = 1; k < Out; ++k) _mm256_storeu_ps(out[k] + i, remembered(y[k]));
  }
  if (i >= count) return;
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count - i)), lanes);
  for (size_t k = 0; k < In; ++k)
    x[k] = k == grad ? gradient.at(i, mask) : _mm256_maskload_ps(in[k] + i, mask);
  rule(x, y);
  // Element for element: masked stores are slow on some CPUs.
  for (size_t k = 0; k < Out; ++k) {
    alignas(32) float last[8];
    _mm256_store_ps(last, k == 0 ? y[0] : remembered(y[k]));
    for (int64_t j = 0; j < count - i; ++j) out[k][i + j] = last[j];
  }
}

const float* input(const KernelCall& call, size_t i) { return call.inputs[i].as<const float>(); }
float* output(const KernelCall& call, size_t i) { return call.outputs[i].as<float>(); }

template <typename Update>
class UpdateKernel : public PreparedKernel {
 public:
  void run(const KernelCall& call, std::span<std::byte>) const override {
    const Update update(call);
    call.pool.run_ranges(call.outputs[0].numel(), elements_per_piece,
                         [&](int64_t begin, int64_t end) { update.run(begin, end); });
    update.finish(call);
  }
};

bool applies(const KernelUse& use) { return update_applies(use, true); }

template <typename Update>
std::unique_ptr<PreparedKernel> prepare(const KernelUse&) {
  return std::make_unique<UpdateKernel<Update>>();
}

}  // namespace

// The layouts may be any, if they are the same.
bool update_applies(const KernelUse& use, bool gradient_too) {
  const KernelOperand& param = use.inputs[0];
  const auto is_like_param = [&](const KernelOperand& operand) {
    return operand.dtype == DType::f32 && operand.layout == param.layout &&
           operand.geometry.shape == param.geometry.shape &&
           same_elements(operand.geometry, dense(operand.geometry.shape));
  };
  if (!is_like_param(param)) return false;
  if (gradient_too && !is_like_param(use.inputs[grad])) return false;
  for (size_t i = 0; i < use.outputs.size(); ++i) {
    if (i == 1) continue;  // the step
    if (!is_like_param(use.outputs[i])) return false;
    if (i > 1 && !(use.has_input(i + 1) && is_like_param(use.inputs[i + 1]))) return false;
  }
  return true;
}

SgdUpdate::SgdUpdate(const KernelCall& call)
    : rate_(rounded(call, memory + 1)),
      momentum_(rounded(call, memory + 2)),
      undamped_(static_cast<float>(1.0 - number(call, memory + 3))),
      decay_(rounded(call, memory + 4)),
      first_(updates_so_far(call) == 0),
      nesterov_(call.attrs.flag("nesterov")),
      param_(input(call, param)),
      grad_(input(call, grad)),
      velocity_(call.has_input(memory) ? input(call, memory) : nullptr),
      new_param_(output(call, 0)) {
  if (velocity_) new_velocity_ = output(call, 2);
}

void SgdUpdate::run(int64_t begin, int64_t end, const float* grad) const {
  run_with(StoredGradient{grad}, begin, end);
}

void SgdUpdate::run_outer(int64_t begin, int64_t end, float factor, const float* row) const {
  run_with(OuterGradient{factor, row}, begin, end);
}

template <typename Gradient>
void SgdUpdate::run_with(Gradient gradient, int64_t begin, int64_t end) const {
  with_rule([&](auto memories, auto rule) {
    if constexpr (memories == 0) {
      sweep<2, 1>(rule, gradient, {param_ + begin, nullptr}, {new_param_ + begin}, end - begin);
    } else {
      sweep<3, 2>(rule, gradient, {param_ + begin, nullptr, velocity_ + begin},
                  {new_param_ + begin, new_velocity_ + begin}, end - begin);
    }
  });
  // Momentum is switched off: the velocity rests, as PyTorch's does.
  if (velocity_ && momentum_ == 0 && new_velocity_ != velocity_)
    std::copy(velocity_ + begin, velocity_ + end, new_velocity_ + begin);
}

void SgdUpdate::finish(const KernelCall& call) const {
  if (!velocity_) return;
  *output(call, 1) = updates_so_far(call) + (momentum_ == 0 ? 0 : 1);
}

AdamUpdate::AdamUpdate(const KernelCall& call) {
  enum : size_t { first_moment = memory, second_moment, rate_at, beta1, beta2, eps, decay_at };
  double first_bias = 1, second_bias = 1;
  if (call.attrs.flag("bias_correction")) {
    const double steps = static_cast<double>(updates_so_far(call)) + 1;
    first_bias = 1 - std::pow(number(call, beta1), steps);
    second_bias = 1 - std::pow(number(call, beta2), steps);
  }
  const double rate = number(call, rate_at), decay = number(call, decay_at);
  const bool decoupled = call.attrs.flag("decoupled");
  keep_first_ = rounded(call, beta1);
  add_first_ = static_cast<float>(1 - number(call, beta1));
  keep_second_ = rounded(call, beta2);
  add_second_ = static_cast<float>(1 - number(call, beta2));
  into_grad_ = decoupled ? 0 : static_cast<float>(decay);
  shrink_ = decoupled ? static_cast<float>(1 - rate * decay) : 1;
  step_size_ = static_cast<float>(-(rate / first_bias));
  root_bias_ = static_cast<float>(std::sqrt(second_bias));
  epsilon_ = rounded(call, eps);
  in_ = {input(call, param), input(call, grad), input(call, first_moment),
         input(call, second_moment)};
  out_ = {output(call, 0), output(call, 2), output(call, 3)};
}

void AdamUpdate::run(int64_t begin, int64_t end, const float* grad) const {
  run_with(StoredGradient{grad}, begin, end);
}

void AdamUpdate::run_outer(int64_t begin, int64_t end, float factor, const float* row) const {
  run_with(OuterGradient{factor, row}, begin, end);
}

template <typename Gradient>
void AdamUpdate::run_with(Gradient gradient, int64_t begin, int64_t end) const {
  with_rule([&](auto, auto rule) {
    sweep<4, 3>(rule, gradient, {in_[0] + begin, nullptr, in_[2] + begin, in_[3] + begin},
                {out_[0] + begin, out_[1] + begin, out_[2] + begin}, end - begin);
  });
}

void AdamUpdate::finish(const KernelCall& call) const { count_update(call); }

RmspropUpdate::RmspropUpdate(const KernelCall& call)
    : rate_(rounded(call, memory + 2)),
      keep_(rounded(call, memory + 3)),
      add_(static_cast<float>(1 - number(call, memory + 3))),
      epsilon_(rounded(call, memory + 4)),
      decay_(rounded(call, memory + 5)),
      momentum_(rounded(call, memory + 6)),
      tf_variant_(call.attrs.flag("tf_variant")),
      first_(updates_so_far(call) == 0),
      param_(input(call, param)),
      grad_(input(call, grad)),
      square_(input(call, memory)),
      new_param_(output(call, 0)),
      new_square_(output(call, 2)) {
  if (!call.has_input(memory + 1)) return;
  buffer_ = input(call, memory + 1);
  new_buffer_ = output(call, 3);
}

void RmspropUpdate::run(int64_t begin, int64_t end, const float* grad) const {
  run_with(StoredGradient{grad}, begin, end);
}

void RmspropUpdate::run_outer(int64_t begin, int64_t end, float factor, const float* row) const {
  run_with(OuterGradient{factor, row}, begin, end);
}

template <typename Gradient>
void RmspropUpdate::run_with(Gradient gradient, int64_t begin, int64_t end) const {
  const float *p = param_ + begin, *square = square_ + begin;
  float *new_p = new_param_ + begin, *new_square = new_square_ + begin;
  const int64_t count = end - begin;
  with_rule([&](auto memories, auto rule) {
    if constexpr (memories == 2) {
      sweep<4, 3>(rule, gradient, {p, nullptr, square, buffer_ + begin},
                  {new_p, new_square, new_buffer_ + begin}, count);
    } else {
      sweep<3, 2>(rule, gradient, {p, nullptr, square}, {new_p, new_square}, count);
    }
  });
  if (buffer_ && momentum_ == 0 && new_buffer_ != buffer_)
    std::copy(buffer_ + begin, buffer_ + end, new_buffer_ + begin);
}

void RmspropUpdate::finish(const KernelCall& call) const { count_update(call); }

std::span<const KernelEntry> update_entries() {
  static constexpr KernelEntry entries[] = {
      // Those of halves have entries of their own, in update_of_halves.cpp.
      {.op = "sgd",
       .name = "avx2",
       .applies = applies,
       .prepare = prepare<SgdUpdate>,
       .reads_halves = true},
      {.op = "adam",
       .name = "avx2",
       .applies = applies,
       .prepare = prepare<AdamUpdate>,
       .reads_halves = true},
      {.op = "rmsprop",
       .name = "avx2",
       .applies = applies,
       .prepare = prepare<RmspropUpdate>,
       .reads_halves = true},
  };
  return entries;
}

}  // namespace tessera::cpu
