#include "tessera/backend/cpu/kernels/x86/fused/activations.h"

#include <numbers>

#include "tessera/backend/cpu/kernels/x86/fused/functions.h"

namespace tessera::cpu::fused {
namespace {

// clamp(x + 3, 0, 6)
Ymm gate(Step& s) {
  const Ymm y = s.fresh();
  s.code().vaddps(y, s.reg(0), s.constant(3));
  clamp_in_place(s, y, 0, 6);
  return y;
}

constexpr float sqrt_half = std::numbers::sqrt2_v<float> / 2;
constexpr float gelu_cubic = 0.044715F;
constexpr float gelu_scale = 0.7978845608028654F;  // sqrt(2 / pi)

bool approximates(Step& s) { return s.attrs().text("approximate") == "tanh"; }

Ymm gelu_tanh(Step& s, const Ymm& x) {
  auto& c = s.code();
  const Ymm inner = s.fresh();
  c.vmulps(inner, x, s.constant(gelu_cubic));
  c.vmulps(inner, inner, x);
  c.vmulps(inner, inner, x);
  c.vaddps(inner, x, inner);
  c.vmulps(inner, inner, s.constant(gelu_scale));
  const Ymm y = tanh(s.emitter(), inner);
  s.emitter().release(inner);
  return y;
}

Ymm gelu_erf(Step& s, const Ymm& x) {
  const Ymm inner = s.fresh();
  s.code().vmulps(inner, x, s.constant(sqrt_half));
  const Ymm y = erf(s.emitter(), inner);
  s.emitter().release(inner);
  return y;
}

}  // namespace

Ymm relu(Step& s) {
  const Ymm y = s.zero();
  s.code().vmaxps(y, y, s.source(0));
  return y;
}

Ymm leaky_relu(Step& s) {
  const Ymm x = s.reg(0), scaled = s.fresh();
  s.code().vmulps(scaled, x, s.constant(s.number("negative_slope")));
  return select(s, compare(s, x, s.zero(), gt), x, scaled);
}

Ymm leaky_relu_backward(Step& s) {
  const Ymm g = s.reg(0), scaled = s.fresh();
  s.code().vmulps(scaled, g, s.constant(s.number("negative_slope")));
  return select(s, compare(s, s.reg(1), s.zero(), gt), g, scaled);
}

Ymm threshold(Step& s) {
  const Ymm x = s.reg(0);
  const Ymm mask = compare(s, x, s.constant(s.number("threshold")), le);
  return select(s, mask, s.constant(s.number("value")), x);
}

Ymm threshold_backward(Step& s) {
  const Ymm mask = compare(s, s.reg(1), s.constant(s.number("threshold")), le);
  s.code().vandnps(mask, mask, s.source(0));
  return mask;
}

Ymm hardtanh(Step& s) { return bounded(s, s.reg(0), s.number("min_val"), s.number("max_val")); }

Ymm hardtanh_backward(Step& s) {
  const Ymm x = s.reg(1);
  const Ymm above = compare(s, x, s.constant(s.number("min_val")), gt);
  const Ymm below = compare(s, x, s.constant(s.number("max_val")), lt);
  s.code().vandps(above, above, below);
  s.code().vandps(above, above, s.source(0));
  return above;
}

Ymm hardsigmoid(Step& s) {
  const Ymm y = gate(s);
  s.code().vdivps(y, y, s.constant(6));
  return y;
}

Ymm hardswish(Step& s) {
  const Ymm y = gate(s);
  s.code().vmulps(y, s.reg(0), y);
  s.code().vdivps(y, y, s.constant(6));
  return y;
}

Ymm hardsigmoid_backward(Step& s) {
  const Ymm size = s.fresh();
  s.code().vandps(size, s.reg(1), s.emitter().integer(~sign_bit));
  const Ymm mask = compare(s, size, s.constant(3), lt);
  s.code().vdivps(size, s.reg(0), s.constant(6));
  s.code().vandps(size, size, mask);
  return size;
}

Ymm hardswish_backward(Step& s) {
  auto& c = s.code();
  const Ymm g = s.reg(0), x = s.reg(1), y = s.fresh();
  c.vdivps(y, x, s.constant(3));
  c.vaddps(y, y, s.constant(0.5F));
  c.vmulps(y, g, y);
  const Ymm inner = select(s, compare(s, x, s.constant(3), ge), g, y);
  const Ymm below = compare(s, x, s.constant(-3), lt);
  c.vandnps(inner, below, inner);
  return inner;
}

Ymm silu(Step& s) {
  auto& c = s.code();
  const Ymm x = s.reg(0), negative = s.fresh();
  c.vxorps(negative, x, s.emitter().integer(sign_bit));
  const Ymm y = exp(s.emitter(), negative);
  c.vaddps(y, y, s.constant(1));
  c.vdivps(y, x, y);
  return y;
}

Ymm silu_backward(Step& s) {
  auto& c = s.code();
  const Ymm g = s.reg(0), x = s.reg(1);
  const Ymm gate = sigmoid(s.emitter(), x), y = s.load(1);
  c.vsubps(y, y, gate);
  c.vmulps(y, x, y);
  c.vaddps(y, y, s.constant(1));
  c.vmulps(gate, g, gate);
  c.vmulps(y, gate, y);
  return y;
}

Ymm sigmoid_backward(Step& s) {
  auto& c = s.code();
  const Ymm y = s.load(1), out = s.reg(1);
  c.vsubps(y, y, out);
  c.vmulps(y, s.reg(0), y);
  c.vmulps(y, y, out);
  return y;
}

Ymm tanh_backward(Step& s) {
  auto& c = s.code();
  const Ymm y = s.load(1), square = s.fresh(), out = s.reg(1);
  c.vmulps(square, out, out);
  c.vsubps(y, y, square);
  c.vmulps(y, s.reg(0), y);
  return y;
}

Ymm gelu(Step& s) {
  auto& c = s.code();
  const Ymm x = s.reg(0);
  const Ymm y = approximates(s) ? gelu_tanh(s, x) : gelu_erf(s, x);
  const Ymm half = s.fresh();
  c.vmulps(half, x, s.constant(0.5F));
  c.vaddps(y, y, s.constant(1));
  c.vmulps(y, half, y);
  return y;
}

Ymm gelu_backward(Step& s) {
  auto& c = s.code();
  const Ymm x = s.reg(1);
  if (!approximates(s)) {
    const Ymm below = gelu_erf(s, x), square = s.fresh();
    c.vaddps(below, below, s.constant(1));
    c.vmulps(below, below, s.constant(0.5F));
    c.vmulps(square, x, x);
    c.vmulps(square, square, s.constant(-0.5F));
    const Ymm density = exp(s.emitter(), square);
    c.vmulps(density, density, s.constant(gelu_scale * 0.5F));
    c.vmulps(density, x, density);
    c.vaddps(below, below, density);
    c.vmulps(below, s.reg(0), below);
    return below;
  }
  const Ymm t = gelu_tanh(s, x), slope = s.load(1), inner = s.fresh();
  c.vmulps(inner, t, t);
  c.vsubps(slope, slope, inner);
  c.vmulps(inner, x, s.constant(0.5F));
  c.vmulps(slope, inner, slope);
  c.vmulps(inner, x, s.constant(3 * gelu_cubic));
  c.vmulps(inner, inner, x);
  c.vaddps(inner, inner, s.constant(1));
  c.vmulps(inner, inner, s.constant(gelu_scale));
  c.vmulps(slope, slope, inner);
  c.vaddps(t, t, s.constant(1));
  c.vmulps(t, t, s.constant(0.5F));
  c.vaddps(t, t, slope);
  c.vmulps(t, s.reg(0), t);
  return t;
}

Ymm elu(Step& s) {
  auto& c = s.code();
  const float scale = s.number("scale");
  const Ymm x = s.reg(0), inner = s.fresh();
  c.vmulps(inner, x, s.constant(s.number("input_scale")));
  const Ymm y = expm1(s.emitter(), inner);
  c.vmulps(y, y, s.constant(s.number("alpha") * scale));
  c.vmulps(inner, x, s.constant(scale));
  return select(s, compare(s, x, s.zero(), le), y, inner);
}

Ymm elu_backward(Step& s) {
  auto& c = s.code();
  const float scale = s.number("scale"), negative = s.number("alpha") * scale;
  const Ymm g = s.reg(0), x = s.reg(1), y = s.fresh();
  c.vmulps(y, g, s.constant(s.number("input_scale")));
  if (s.attrs().flag("is_result")) {
    const Ymm sum = s.fresh();
    c.vaddps(sum, x, s.constant(negative));
    c.vmulps(y, y, sum);
  } else {
    const Ymm inner = s.fresh();
    c.vmulps(inner, x, s.constant(s.number("input_scale")));
    const Ymm power = exp(s.emitter(), inner);
    c.vmulps(y, y, s.constant(negative));
    c.vmulps(y, y, power);
  }
  const Ymm scaled = s.fresh();
  c.vmulps(scaled, g, s.constant(scale));
  return select(s, compare(s, x, s.zero(), gt), scaled, y);
}

Ymm softplus(Step& s) {
  auto& c = s.code();
  const Ymm x = s.reg(0), inner = s.fresh();
  c.vmulps(inner, x, s.constant(s.number("beta")));
  const Ymm power = exp(s.emitter(), inner);
  const Ymm y = log1p(s.emitter(), power);
  c.vdivps(y, y, s.constant(s.number("beta")));
  return select(s, compare(s, inner, s.constant(s.number("threshold")), gt), x, y);
}

Ymm softplus_backward(Step& s) {
  auto& c = s.code();
  const Ymm g = s.reg(0), inner = s.fresh();
  c.vmulps(inner, s.reg(1), s.constant(s.number("beta")));
  const Ymm z = exp(s.emitter(), inner), y = s.fresh();
  c.vmulps(y, g, z);
  c.vaddps(z, z, s.constant(1));
  c.vdivps(y, y, z);
  return select(s, compare(s, inner, s.constant(s.number("threshold")), gt), g, y);
}

}  // namespace tessera::cpu::fused
