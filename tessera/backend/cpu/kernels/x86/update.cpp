#include "tessera/backend/cpu/kernels/x86/update.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tessera/backend/cpu/kernels/x86/avx2.h"
#include "tessera/base/error.h"
#include "tessera/ops/optimizer_parts.h"

namespace tessera::cpu {
namespace {

using namespace optimizer_parts;

// About 10 us of work.
constexpr int64_t elements_per_piece = 32 << 10;

float rounded(const KernelCall& call, size_t operand) {
  return static_cast<float>(number(call, operand));
}

TESSERA_AVX2 inline __m256 all(float value) { return _mm256_set1_ps(value); }

// A product that must be rounded before it is added to something: compilers would fuse the two.
TESSERA_AVX2 inline __m256 product(__m256 a, __m256 b) {
  __m256 result = _mm256_mul_ps(a, b);
  asm("" : "+x"(result));
  return result;
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

// As optimizer_parts::remembered().
TESSERA_AVX2 inline __m256 remembered(__m256 values) {
  const __m256 sizes = _mm256_andnot_ps(all(-0.0F), values);
  const __m256 small = _mm256_cmp_ps(sizes, all(std::numeric_limits<float>::min()), _CMP_LT_OQ);
  return _mm256_andnot_ps(small, values);
}

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

// ---- SGD: param, grad, velocity

struct SgdNumbers {
  float rate, momentum, undamped, decay;
};

template <bool decays>
struct PlainSgd {
  SgdNumbers n;

  TESSERA_AVX2 void operator()(const __m256* x, __m256* y) const {
    const __m256 d = decays ? _mm256_fmadd_ps(x[0], all(n.decay), x[1]) : x[1];
    y[0] = _mm256_fmadd_ps(d, all(-n.rate), x[0]);
  }
};

template <bool decays, bool first, bool nesterov>
struct MomentumSgd {
  SgdNumbers n;

  TESSERA_AVX2 void operator()(const __m256* x, __m256* y) const {
    const __m256 d = decays ? _mm256_fmadd_ps(x[0], all(n.decay), x[1]) : x[1];
    const __m256 next =
        first ? d : _mm256_fmadd_ps(d, all(n.undamped), product(x[2], all(n.momentum)));
    const __m256 way = nesterov ? _mm256_fmadd_ps(next, all(n.momentum), d) : next;
    y[0] = _mm256_fmadd_ps(way, all(-n.rate), x[0]);
    y[1] = next;
  }
};

template <typename Run>
void with_flag(bool flag, Run run) {
  if (flag) return run(std::true_type());
  run(std::false_type());
}

// ---- Adam: param, grad, first moment, second moment

struct Adam {
  float keep_first, add_first, keep_second, add_second;
  float into_grad, shrink, step_size, root_bias, epsilon;

  TESSERA_AVX2 void operator()(const __m256* x, __m256* y) const {
    const __m256 g = into_grad == 0 ? x[1] : _mm256_fmadd_ps(x[0], all(into_grad), x[1]);
    const __m256 p = product(x[0], all(shrink));
    const __m256 m = _mm256_fmadd_ps(g, all(add_first), product(x[2], all(keep_first)));
    const __m256 v =
        _mm256_fmadd_ps(product(all(add_second), g), g, product(x[3], all(keep_second)));
    const __m256 root = _mm256_div_ps(_mm256_sqrt_ps(v), all(root_bias));
    const __m256 denominator = _mm256_add_ps(root, all(epsilon));
    y[0] = _mm256_add_ps(p, _mm256_div_ps(product(all(step_size), m), denominator));
    y[1] = m;
    y[2] = v;
  }
};

// ---- RMSprop: param, grad, mean square, momentum's buffer

struct RmspropNumbers {
  float rate, keep, add, epsilon, decay, momentum;
  bool tf_variant, restart;
};

// Momentum moves along the buffer, or along this step alone where there is none.
template <bool moves, bool buffered>
struct Rmsprop {
  RmspropNumbers n;

  TESSERA_AVX2 void operator()(const __m256* x, __m256* y) const {
    const __m256 g = n.decay == 0 ? x[1] : _mm256_fmadd_ps(x[0], all(n.decay), x[1]);
    const __m256 before = n.restart ? all(1) : x[2];
    const __m256 square = _mm256_fmadd_ps(product(all(n.add), g), g, product(before, all(n.keep)));
    const __m256 root = n.tf_variant ? _mm256_sqrt_ps(_mm256_add_ps(square, all(n.epsilon)))
                                     : _mm256_add_ps(_mm256_sqrt_ps(square), all(n.epsilon));
    y[1] = square;
    if constexpr (!moves) {
      y[0] = _mm256_sub_ps(x[0], _mm256_div_ps(product(all(n.rate), g), root));
    } else {
      const __m256 kept = buffered ? product(x[3], all(n.momentum)) : all(0);
      const __m256 way = n.tf_variant ? product(all(n.rate), g) : g;
      const __m256 v = _mm256_add_ps(kept, _mm256_div_ps(way, root));
      y[0] = n.tf_variant ? _mm256_sub_ps(x[0], v) : _mm256_fmadd_ps(v, all(-n.rate), x[0]);
      if constexpr (buffered) y[2] = v;
    }
  }
};

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
  const float* p = param_ + begin;
  float* new_p = new_param_ + begin;
  const int64_t count = end - begin;
  const SgdNumbers n{rate_, momentum_, undamped_, decay_};
  with_flag(decay_ != 0, [&](auto decays) {
    if (!velocity_ || momentum_ == 0) {
      sweep<2, 1>(PlainSgd<decays>{n}, gradient, {p, nullptr}, {new_p}, count);
      return;
    }
    with_flag(first_, [&](auto first) {
      with_flag(nesterov_, [&](auto nesterov) {
        sweep<3, 2>(MomentumSgd<decays, first, nesterov>{n}, gradient,
                    {p, nullptr, velocity_ + begin}, {new_p, new_velocity_ + begin}, count);
      });
    });
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
  const Adam rule{keep_first_, add_first_, keep_second_, add_second_, into_grad_,
                  shrink_,     step_size_, root_bias_,   epsilon_};
  sweep<4, 3>(rule, gradient, {in_[0] + begin, nullptr, in_[2] + begin, in_[3] + begin},
              {out_[0] + begin, out_[1] + begin, out_[2] + begin}, end - begin);
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
  const RmspropNumbers n{rate_,  keep_,     add_,        epsilon_,
                         decay_, momentum_, tf_variant_, tf_variant_ && first_};
  const float *p = param_ + begin, *square = square_ + begin;
  float *new_p = new_param_ + begin, *new_square = new_square_ + begin;
  const int64_t count = end - begin;
  if (buffer_ && momentum_ != 0) {
    sweep<4, 3>(Rmsprop<true, true>{n}, gradient, {p, nullptr, square, buffer_ + begin},
                {new_p, new_square, new_buffer_ + begin}, count);
    return;
  }
  with_flag(momentum_ != 0, [&](auto moves) {
    sweep<3, 2>(Rmsprop<moves, false>{n}, gradient, {p, nullptr, square}, {new_p, new_square},
                count);
  });
  if (buffer_ && new_buffer_ != buffer_)
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
