// Elementary functions of eight floats as generated code, right to about two units in the last
// place over their whole range, with infinities and NaN as the C library has them. An argument's
// register is not changed; the result is a fresh one.
#pragma once

#include <span>

#include "tessera/backend/cpu/kernels/x86/fused/emitter.h"

namespace tessera::cpu::fused {

using Emitter = FusedEmitter;
using Ymm = Xbyak::Ymm;

Ymm exp(Emitter& e, const Ymm& x);
Ymm expm1(Emitter& e, const Ymm& x);  // not above 88
Ymm log(Emitter& e, const Ymm& x);
Ymm log1p(Emitter& e, const Ymm& x);
Ymm tanh(Emitter& e, const Ymm& x);
Ymm erf(Emitter& e, const Ymm& x);
Ymm sigmoid(Emitter& e, const Ymm& x);

// The sum of coefficients[i] * x^i.
Ymm polynomial(Emitter& e, const Ymm& x, std::span<const float> coefficients);

}  // namespace tessera::cpu::fused
