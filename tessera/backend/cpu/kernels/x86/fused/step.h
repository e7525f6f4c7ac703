// One step of a fused body while its instructions are written, and the building blocks that
// instructions share.
#pragma once

#include <string_view>

#include "tessera/backend/cpu/kernels/x86/fused/emitter.h"
#include "tessera/backend/cpu/kernels/x86/fused/row.h"
#include "tessera/ops/fused_body.h"

namespace tessera::cpu {

class FusedStep {
 public:
  FusedStep(FusedEmitter& emitter, const BodyStep& step, size_t operands,
            FusedEmitter::Value element_number, size_t number)
      : emitter_(emitter),
        step_(step),
        operands_(operands),
        element_number_(element_number),
        number_(number) {}

  FusedEmitter& emitter() { return emitter_; }
  Xbyak::CodeGenerator& code() { return emitter_.code(); }
  const Attrs& attrs() const { return step_.attrs; }
  float number(std::string_view name) const { return static_cast<float>(step_.attrs.number(name)); }
  const BodyValue& argument(size_t i) const { return step_.arguments[i]; }

  // Arguments; see FusedEmitter.
  Xbyak::Ymm reg(size_t i);
  FusedEmitter::Source source(size_t i);
  Xbyak::Ymm fresh() { return emitter_.fresh(); }
  Xbyak::Address constant(float value) { return emitter_.number(value); }
  Xbyak::Address constant(const BodyValue& number);
  Xbyak::Ymm load(float value) { return emitter_.load(constant(value)); }
  Xbyak::Ymm zero();

  // For steps that read the random state: the elements' row-major numbers, and a word of what they
  // have in common, the same in all lanes.
  Xbyak::Ymm element_numbers() { return emitter_.reg(element_number_); }
  void load_rounding(const Xbyak::Ymm& to, size_t offset);

 private:
  FusedEmitter& emitter_;
  const BodyStep& step_;
  const size_t operands_;  // values of steps are numbered after them
  const FusedEmitter::Value element_number_;
  const size_t number_;  // of the step in the whole body
};

// Returns a fresh register with the result.
using EmitStep = Xbyak::Ymm (*)(FusedStep&);

namespace fused {

using Code = Xbyak::CodeGenerator;
using Step = FusedStep;
using Xbyak::Ymm;

// Predicates of vcmpps; quiet ones.
constexpr uint8_t eq = 0, unordered = 3, ne = 4, lt = 17, le = 18, ge = 29, gt = 30;
constexpr uint32_t sign_bit = 0x80000000;

inline Ymm compare(Step& s, const Ymm& a, const Xbyak::Operand& b, uint8_t predicate) {
  const Ymm mask = s.fresh();
  s.code().vcmpps(mask, a, b, predicate);
  return mask;
}

// `yes` where the mask holds, in a fresh register.
inline Ymm select(Step& s, const Ymm& mask, const Xbyak::Operand& yes, const Ymm& no) {
  const Ymm y = s.fresh();
  s.code().vblendvps(y, no, yes, mask);
  return y;
}

// NaN wins; the second of two equal ones, as the reference has it.
template <auto extreme>
Ymm winner(Step& s, const Ymm& a, const Xbyak::Operand& b) {
  const Ymm y = s.fresh();
  (s.code().*extreme)(y, a, b);
  const Ymm mask = compare(s, a, a, unordered);
  s.code().vblendvps(y, y, a, mask);
  return y;
}

inline Ymm bounded(Step& s, const Ymm& x, float low, float high) {
  const Ymm above = winner<&Code::vmaxps>(s, x, s.constant(low));
  return winner<&Code::vminps>(s, above, s.constant(high));
}

// min(max(x, low), high) with std's meaning: NaN stays.
inline void clamp_in_place(Step& s, const Ymm& x, float low, float high) {
  const Ymm bound = s.load(low);
  s.code().vmaxps(x, bound, x);
  s.code().vmovups(bound, s.constant(high));
  s.code().vminps(x, bound, x);
}

}  // namespace fused
}  // namespace tessera::cpu
