// The element-wise rows that have code of their own in fused loops: an ordered table from names and
// types of arguments to what writes the instructions.
#pragma once

#include <span>
#include <string_view>

#include "tessera/backend/cpu/kernels/fused_emitter.h"
#include "tessera/ops/fused_body.h"

namespace tessera::cpu {

// One step while its instructions are written.
class FusedStep {
 public:
  FusedStep(FusedEmitter& emitter, const BodyStep& step, size_t operands)
      : emitter_(emitter), step_(step), operands_(operands) {}

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
  Xbyak::Ymm load(float value) { return emitter_.load(constant(value)); }
  Xbyak::Ymm zero();

 private:
  FusedEmitter& emitter_;
  const BodyStep& step_;
  const size_t operands_;  // values of steps are numbered after them
};

// Returns a fresh register with the result.
using EmitStep = Xbyak::Ymm (*)(FusedStep&);

// Null where there is no code for a use of a row with arguments of these types.
EmitStep find_instruction(const BodyStep& step, std::span<const DType> arguments);

inline bool can_generate(const BodyStep& step, std::span<const DType> arguments) {
  return find_instruction(step, arguments) != nullptr;
}

}  // namespace tessera::cpu
