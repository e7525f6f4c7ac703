// What optimisers do with vectors: parameter, gradient and what is remembered in, parameter and
// what is remembered out. For the kernels that walk over memory of floats or of halves.
#pragma once

#include <limits>
#include <type_traits>

#include "tessera/backend/cpu/kernels/x86/avx2.h"
#include "tessera/backend/cpu/kernels/x86/update.h"

namespace tessera::cpu {
namespace update_rules {

TESSERA_AVX2 inline __m256 all(float value) { return _mm256_set1_ps(value); }

// A product that must be rounded before it is added to something: compilers would fuse the two.
TESSERA_AVX2 inline __m256 product(__m256 a, __m256 b) {
  __m256 result = _mm256_mul_ps(a, b);
  asm("" : "+x"(result));
  return result;
}

// As optimizer_parts::remembered().
TESSERA_AVX2 inline __m256 remembered(__m256 values) {
  const __m256 sizes = _mm256_andnot_ps(all(-0.0F), values);
  const __m256 small = _mm256_cmp_ps(sizes, all(std::numeric_limits<float>::min()), _CMP_LT_OQ);
  return _mm256_andnot_ps(small, values);
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

template <typename Run>
void with_flag(bool flag, Run run) {
  if (flag) return run(std::true_type());
  run(std::false_type());
}

template <size_t count>
using Memories = std::integral_constant<size_t, count>;

}  // namespace update_rules

template <typename Sweep>
void SgdUpdate::with_rule(const Sweep& sweep) const {
  using namespace update_rules;
  const SgdNumbers n{rate_, momentum_, undamped_, decay_};
  with_flag(decay_ != 0, [&](auto decays) {
    if (!velocity_ || momentum_ == 0) return sweep(Memories<0>(), PlainSgd<decays>{n});
    with_flag(first_, [&](auto first) {
      with_flag(nesterov_, [&](auto nesterov) {
        sweep(Memories<1>(), MomentumSgd<decays, first, nesterov>{n});
      });
    });
  });
}

template <typename Sweep>
void AdamUpdate::with_rule(const Sweep& sweep) const {
  using namespace update_rules;
  sweep(Memories<2>(), Adam{keep_first_, add_first_, keep_second_, add_second_, into_grad_, shrink_,
                            step_size_, root_bias_, epsilon_});
}

template <typename Sweep>
void RmspropUpdate::with_rule(const Sweep& sweep) const {
  using namespace update_rules;
  const RmspropNumbers n{rate_,  keep_,     add_,        epsilon_,
                         decay_, momentum_, tf_variant_, tf_variant_ && first_};
  if (buffer_ && momentum_ != 0) return sweep(Memories<2>(), Rmsprop<true, true>{n});
  with_flag(momentum_ != 0, [&](auto moves) { sweep(Memories<1>(), Rmsprop<moves, false>{n}); });
}

}  // namespace tessera::cpu
