#include "tessera/backend/cpu/kernels/x86/fused/functions.h"

#include <limits>

namespace tessera::cpu::fused {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr uint8_t less = 1, equal = 0, not_less = 5, greater = 30;
constexpr uint32_t sign_bit = 0x80000000;

// x = n ln 2 + r with whole n; exp(x) = 2^n (1 + rest).
struct SplitExp {
  Ymm n, rest;
};

SplitExp split_exp(Emitter& e, const Ymm& x) {
  auto& c = e.code();
  const Ymm n = e.fresh(), r = e.fresh();
  c.vmulps(n, x, e.number(1.44269504F));
  c.vroundps(n, n, 0);
  c.vmovaps(r, x);
  c.vfnmadd231ps(r, n, e.number(0.693145752F));  // ln 2 in two parts
  c.vfnmadd231ps(r, n, e.number(1.42860677e-6F));
  static constexpr float terms[] = {0.5F, 1.0F / 6, 1.0F / 24, 1.0F / 120, 1.0F / 720, 1.0F / 5040};
  const Ymm p = polynomial(e, r, terms);
  c.vmulps(p, p, r);
  c.vfmadd213ps(p, r, r);
  e.release(r);
  return {n, p};
}

// Between two numbers; NaN stays.
Ymm clamped(Emitter& e, const Ymm& x, float low, float high) {
  auto& c = e.code();
  const Ymm bound = e.load(e.number(high)), y = e.fresh();
  c.vminps(y, bound, x);
  c.vmovups(bound, e.number(low));
  c.vmaxps(y, bound, y);
  e.release(bound);
  return y;
}

// Whole numbers to powers of two, in place.
void power_of_two(Emitter& e, const Ymm& n) {
  e.code().vpaddd(n, n, e.integer(127));
  e.code().vpslld(n, n, 23);
}

}  // namespace

Ymm polynomial(Emitter& e, const Ymm& x, std::span<const float> coefficients) {
  const Ymm p = e.load(e.number(coefficients.back()));
  for (size_t i = coefficients.size() - 1; i-- > 0;) {
    e.code().vfmadd213ps(p, x, e.number(coefficients[i]));
  }
  return p;
}

// Scaled in two steps: the result may be denormal or infinite although 2^n is neither.
Ymm exp(Emitter& e, const Ymm& x) {
  auto& c = e.code();
  const Ymm bounded = clamped(e, x, -104.0F, 89.0F);
  const auto [n, rest] = split_exp(e, bounded);
  c.vcvtps2dq(n, n);
  c.vpsrad(bounded, n, 1);
  c.vpsubd(n, n, bounded);
  power_of_two(e, n);
  power_of_two(e, bounded);
  c.vfmadd213ps(rest, n, n);
  c.vmulps(rest, rest, bounded);
  e.release(n);
  e.release(bounded);
  return rest;
}

Ymm expm1(Emitter& e, const Ymm& x) {
  auto& c = e.code();
  const Ymm bounded = clamped(e, x, -80.0F, 88.0F);
  const auto [n, rest] = split_exp(e, bounded);
  c.vcvtps2dq(n, n);
  power_of_two(e, n);
  c.vsubps(bounded, n, e.number(1));
  c.vfmadd213ps(rest, n, bounded);
  e.release(n);
  e.release(bounded);
  return rest;
}

// From z = (m - 1) / (m + 1) of the mantissa m in [0.75, 1.5): log(m) = 2 (z + z^3/3 + ...).
Ymm log(Emitter& e, const Ymm& x) {
  auto& c = e.code();
  const Ymm m = e.fresh(), exponent = e.fresh(), mask = e.fresh(), z = e.fresh();
  // Denormal numbers are made normal first.
  c.vcmpps(mask, x, e.number(std::numeric_limits<float>::min()), less);
  c.vmulps(m, x, e.number(8388608.0F));
  c.vblendvps(m, x, m, mask);
  c.vpsubd(exponent, m, e.number(0.75F));
  c.vpsrad(exponent, exponent, 23);
  c.vpslld(z, exponent, 23);
  c.vpsubd(m, m, z);
  c.vcvtdq2ps(exponent, exponent);
  c.vandps(mask, mask, e.number(23));
  c.vsubps(exponent, exponent, mask);

  c.vaddps(mask, m, e.number(1));
  c.vsubps(z, m, e.number(1));
  c.vdivps(z, z, mask);
  c.vmulps(mask, z, z);
  static constexpr float terms[] = {2.0F / 3, 2.0F / 5, 2.0F / 7, 2.0F / 9};
  const Ymm p = polynomial(e, mask, terms);
  c.vmulps(p, p, mask);
  c.vmulps(p, p, z);
  c.vfmadd231ps(p, exponent, e.number(1.42860677e-6F));
  c.vfmadd231ps(p, z, e.number(2));
  c.vfmadd231ps(p, exponent, e.number(0.693145752F));
  // Infinity and NaN are their own, 0 has minus infinity, below it there is none.
  c.vcmpps(mask, x, e.number(infinity), not_less);
  c.vblendvps(p, p, x, mask);
  c.vxorps(z, z, z);
  c.vcmpps(mask, x, z, equal);
  c.vmovups(m, e.number(-infinity));
  c.vblendvps(p, p, m, mask);
  c.vcmpps(mask, x, z, less);
  c.vorps(p, p, mask);
  for (const Ymm& reg : {m, exponent, mask, z}) e.release(reg);
  return p;
}

// log(u) for u = 1 + x rounded, and the part of x that rounding lost.
Ymm log1p(Emitter& e, const Ymm& x) {
  auto& c = e.code();
  const Ymm u = e.fresh();
  c.vaddps(u, x, e.number(1));
  const Ymm result = log(e, u);
  const Ymm lost = e.fresh(), mask = e.fresh(), zero = e.fresh();
  c.vsubps(lost, u, e.number(1));
  c.vsubps(lost, x, lost);
  c.vdivps(lost, lost, u);
  c.vxorps(zero, zero, zero);
  c.vcmpps(mask, u, zero, greater);
  c.vandps(lost, lost, mask);
  c.vcmpps(mask, u, e.number(infinity), less);
  c.vandps(lost, lost, mask);
  c.vaddps(result, result, lost);
  for (const Ymm& reg : {u, lost, mask, zero}) e.release(reg);
  return result;
}

// (exp(2x) - 1) / (exp(2x) + 1) of |x|, which keeps the digits of a small x; the sign after.
Ymm tanh(Emitter& e, const Ymm& x) {
  auto& c = e.code();
  const Ymm size = e.fresh(), bound = e.load(e.number(10));
  c.vandps(size, x, e.integer(~sign_bit));
  c.vminps(size, bound, size);
  c.vaddps(size, size, size);
  e.release(bound);
  const Ymm m = expm1(e, size);
  c.vaddps(size, m, e.number(2));
  c.vdivps(m, m, size);
  c.vandps(size, x, e.integer(sign_bit));
  c.vorps(m, m, size);
  e.release(size);
  return m;
}

// x times a polynomial of x^2 up to 1; 1 - exp(-polynomial of |x|) above.
Ymm erf(Emitter& e, const Ymm& x) {
  auto& c = e.code();
  const Ymm size = e.fresh(), bound = e.load(e.number(4));
  c.vandps(size, x, e.integer(~sign_bit));
  c.vminps(size, bound, size);
  e.release(bound);
  static constexpr float far[] = {-0.00018847321916837245F, 1.1295803785324097F,
                                  0.6332163214683533F,      0.10842215269804001F,
                                  -0.025210371240973473F,   0.004205296281725168F,
                                  -0.00044147498556412756F, 2.1697807824239135e-05F};
  const Ymm exponent = polynomial(e, size, far);
  c.vxorps(exponent, exponent, e.integer(sign_bit));
  const Ymm outer = exp(e, exponent);
  c.vmovups(exponent, e.number(1));
  c.vsubps(outer, exponent, outer);
  // The sign: x itself where it is NaN.
  c.vandps(exponent, x, e.integer(sign_bit));
  c.vorps(outer, outer, exponent);

  c.vmulps(exponent, x, x);
  static constexpr float near[] = {0.128379225730896F,      -0.37612637877464294F,
                                   0.11283782124519348F,    -0.0268654003739357F,
                                   0.005220945458859205F,   -0.000848282827064395F,
                                   0.00011256944708293304F, -9.641506949265022e-06F};
  const Ymm inner = polynomial(e, exponent, near);
  c.vfmadd213ps(inner, x, x);
  c.vcmpps(size, size, e.number(1), less);
  c.vblendvps(outer, outer, inner, size);
  for (const Ymm& reg : {size, exponent, inner}) e.release(reg);
  return outer;
}

Ymm sigmoid(Emitter& e, const Ymm& x) {
  auto& c = e.code();
  const Ymm negative = e.fresh();
  c.vxorps(negative, x, e.integer(sign_bit));
  const Ymm y = exp(e, negative);
  c.vaddps(y, y, e.number(1));
  c.vmovups(negative, e.number(1));
  c.vdivps(y, negative, y);
  e.release(negative);
  return y;
}

}  // namespace tessera::cpu::fused
