#include "tessera/backend/cpu/kernels/x86/fused/instructions.h"

#include <cstddef>
#include <limits>

#include "tessera/backend/cpu/kernels/x86/fused/activations.h"
#include "tessera/backend/cpu/kernels/x86/fused/functions.h"
#include "tessera/kernels/scalar_math.h"

namespace tessera::cpu {
namespace {

using namespace fused;

constexpr uint32_t all_bits = 0xffffffff;

template <auto instruction>
Ymm binary(Step& s) {
  const Ymm a = s.reg(0);
  const auto b = s.source(1);
  const Ymm y = s.fresh();
  (s.code().*instruction)(y, a, b);
  return y;
}

template <uint8_t predicate>
Ymm comparison(Step& s) {
  const Ymm a = s.reg(0);
  return compare(s, a, s.source(1), predicate);
}

template <Ymm (*function)(FusedEmitter&, const Ymm&)>
Ymm unary(Step& s) {
  return function(s.emitter(), s.reg(0));
}

template <uint8_t mode>
Ymm rounded(Step& s) {
  const Ymm y = s.fresh();
  s.code().vroundps(y, s.source(0), mode);
  return y;
}

// a + alpha * b, in one rounding.
Ymm scaled_sum(Step& s, size_t a, size_t b, float alpha) {
  auto& c = s.code();
  const Ymm left = s.reg(a);
  if (alpha != 1 && alpha != -1) {
    const Ymm y = s.fresh(), right = s.reg(b);
    c.vmovaps(y, left);
    c.vfmadd231ps(y, right, s.constant(alpha));
    return y;
  }
  const auto right = s.source(b);
  const Ymm y = s.fresh();
  if (alpha == 1) {
    c.vaddps(y, left, right);
  } else {
    c.vsubps(y, left, right);
  }
  return y;
}

Ymm add(Step& s) { return scaled_sum(s, 0, 1, s.number("alpha")); }
Ymm sub(Step& s) { return scaled_sum(s, 0, 1, -s.number("alpha")); }
Ymm rsub(Step& s) { return scaled_sum(s, 1, 0, -s.number("alpha")); }

Ymm neg(Step& s) {
  const Ymm y = s.fresh();
  s.code().vxorps(y, s.reg(0), s.emitter().integer(sign_bit));
  return y;
}

Ymm abs(Step& s) {
  const Ymm y = s.fresh();
  s.code().vandps(y, s.reg(0), s.emitter().integer(~sign_bit));
  return y;
}

Ymm sqrt(Step& s) {
  const Ymm y = s.fresh();
  s.code().vsqrtps(y, s.source(0));
  return y;
}

Ymm rsqrt(Step& s) {
  const Ymm root = sqrt(s), y = s.load(1);
  s.code().vdivps(y, y, root);
  return y;
}

Ymm reciprocal(Step& s) {
  const Ymm y = s.load(1);
  s.code().vdivps(y, y, s.source(0));
  return y;
}

Ymm copied(Step& s) {
  const Ymm y = s.fresh();
  s.code().vmovaps(y, s.reg(0));
  return y;
}

Ymm sign(Step& s) {
  auto& c = s.code();
  const Ymm x = s.reg(0), zero = s.zero();
  const Ymm above = compare(s, x, zero, gt), below = compare(s, x, zero, lt);
  c.vandps(above, above, s.constant(1));
  c.vandps(below, below, s.constant(1));
  c.vsubps(above, above, below);
  return above;
}

Ymm pow(Step& s) {
  auto& c = s.code();
  const double exponent = s.argument(1).number;
  if (exponent == 0.5) return sqrt(s);
  if (exponent == 1) return copied(s);
  if (exponent == -1) return reciprocal(s);
  const Ymm x = s.reg(0), y = s.fresh();
  c.vmulps(y, x, x);
  if (exponent == 3) c.vmulps(y, y, x);
  if (exponent == 4) c.vmulps(y, y, y);
  if (exponent != -2) return y;
  const Ymm one = s.load(1);
  c.vdivps(one, one, y);
  return one;
}

bool has_short_power(const BodyStep& step) {
  const BodyValue& exponent = step.arguments[1];
  if (exponent.from != BodyValue::From::number) return false;
  for (const double known : {0.5, 1.0, 2.0, 3.0, 4.0, -1.0, -2.0}) {
    if (exponent.number == known) return true;
  }
  return false;
}

Ymm clamp(Step& s) {
  Ymm x = s.reg(0);
  const bool low = s.attrs().has("min"), high = s.attrs().has("max");
  if (low) x = winner<&Code::vmaxps>(s, x, s.constant(s.number("min")));
  if (high) x = winner<&Code::vminps>(s, x, s.constant(s.number("max")));
  return low || high ? x : copied(s);
}

Ymm addcmul(Step& s) {
  auto& c = s.code();
  const Ymm y = s.fresh();
  c.vmulps(y, s.reg(1), s.constant(s.number("value")));
  c.vmulps(y, y, s.source(2));
  c.vaddps(y, s.reg(0), y);
  return y;
}

Ymm addcdiv(Step& s) {
  auto& c = s.code();
  const Ymm y = s.fresh();
  c.vmulps(y, s.reg(1), s.constant(s.number("value")));
  c.vdivps(y, y, s.source(2));
  c.vaddps(y, s.reg(0), y);
  return y;
}

Ymm lerp(Step& s) {
  auto& c = s.code();
  const Ymm a = s.reg(0), b = s.reg(1), weight = s.reg(2);
  const Ymm way = s.fresh(), y = s.fresh(), rest = s.load(1);
  c.vsubps(way, b, a);
  c.vmulps(y, weight, way);
  c.vaddps(y, a, y);
  c.vsubps(rest, rest, weight);
  c.vmulps(way, way, rest);
  c.vsubps(way, b, way);
  c.vcmpps(rest, weight, s.constant(0.5F), lt);
  return select(s, rest, y, way);
}

// --- truth values ---

Ymm as_mask(Step& s, size_t i) { return compare(s, s.reg(i), s.constant(0), ne); }

template <auto instruction>
Ymm logic_of_numbers(Step& s) {
  const Ymm a = as_mask(s, 0), b = as_mask(s, 1);
  (s.code().*instruction)(a, a, b);
  return a;
}

Ymm not_mask(Step& s) {
  const Ymm y = s.fresh();
  s.code().vxorps(y, s.reg(0), s.emitter().integer(all_bits));
  return y;
}

Ymm equal_masks(Step& s) {
  const Ymm a = s.reg(0);
  const auto b = s.source(1);
  const Ymm y = s.fresh();
  s.code().vpcmpeqd(y, a, b);
  return y;
}

Ymm where(Step& s) {
  const Ymm mask = s.reg(0), no = s.reg(2);
  return select(s, mask, s.source(1), no);
}

Ymm masked_fill(Step& s) {
  const Ymm x = s.reg(0), mask = s.reg(1);
  return select(s, mask, s.source(2), x);
}

// --- integers ---

enum class Order { equal, less, greater };

Ymm inverted(Step& s, const Ymm& mask) {
  s.code().vxorps(mask, mask, s.emitter().integer(all_bits));
  return mask;
}

template <Order order, bool holds>
Ymm integer_comparison(Step& s) {
  auto& c = s.code();
  const Ymm a = s.reg(0), b = s.reg(1), y = s.fresh();
  switch (order) {
    case Order::equal:
      c.vpcmpeqd(y, a, b);
      break;
    case Order::less:
      c.vpcmpgtd(y, b, a);
      break;
    case Order::greater:
      c.vpcmpgtd(y, a, b);
      break;
  }
  return holds ? y : inverted(s, y);
}

Ymm integer_is_zero(Step& s) {
  const Ymm x = s.reg(0), y = s.zero();
  s.code().vpcmpeqd(y, y, x);
  return y;
}

bool adds_once(const BodyStep& step) { return step.attrs.number("alpha") == 1; }

// --- casts ---

DType cast_to(const Attrs& attrs, DType from) {
  return attrs.has("dtype") ? attrs.dtype("dtype") : from;
}

// To the nearest half, as the float that it is; immediate 0 of the instruction is to nearest even.
void round_to_half(Step& s, const Ymm& to, const Ymm& from, uint8_t mode = 0) {
  const Xbyak::Xmm halves(to.getIdx());
  s.code().vcvtps2ph(halves, from, mode);
  s.code().vcvtph2ps(to, halves);
}

Ymm cast_mask(Step& s) {
  const DType to = cast_to(s.attrs(), DType::boolean);
  if (to == DType::boolean) return copied(s);
  const Ymm mask = s.reg(0), y = s.fresh();
  s.code().vandps(y, mask, is_floating(to) ? s.constant(1) : s.emitter().integer(1));
  return y;
}

// Of a half too, which is a float in its register.
Ymm cast_number(Step& s) {
  const DType to = cast_to(s.attrs(), DType::f32);
  if (to == DType::f32) return copied(s);
  if (to == DType::boolean) return as_mask(s, 0);
  if (to == DType::f16) {
    const Ymm y = s.fresh();
    round_to_half(s, y, s.reg(0));
    return y;
  }
  const Ymm y = s.fresh();
  s.code().vcvttps2dq(y, s.source(0));
  return y;
}

Ymm cast_integer(Step& s) {
  const DType to = cast_to(s.attrs(), DType::i32);
  if (to == DType::i32) return copied(s);
  if (to == DType::boolean) return inverted(s, integer_is_zero(s));
  const Ymm y = s.fresh();
  s.code().vcvtdq2ps(y, s.source(0));
  if (to == DType::f16) round_to_half(s, y, y);
  return y;
}

bool casts_to_known(const BodyStep& step) {
  const DType to = cast_to(step.attrs, DType::f32);
  return to == DType::f32 || to == DType::f16 || to == DType::i32 || to == DType::boolean;
}

// What base/stochastic_rounding.h does, eight at a time.
Ymm stochastic_cast(Step& s) {
  auto& c = s.code();
  constexpr uint8_t towards_zero = 3, not_less = 29;
  const Ymm x = s.reg(0), places = s.element_numbers();
  const Ymm sum = s.fresh(), last_bit = s.fresh(), size = s.fresh(), y = s.fresh();
  s.load_rounding(sum, offsetof(RoundingStream, first));
  c.vpaddd(sum, sum, places);
  s.load_rounding(y, offsetof(RoundingStream, second));
  c.vpxor(sum, sum, y);
  c.vpsrld(y, sum, RoundingWord::shift);
  c.vpxor(sum, sum, y);
  c.vpmulld(sum, sum, s.emitter().integer(RoundingWord::factor));
  c.vpsrld(sum, sum, 32 - RoundingWord::bits);
  c.vcvtdq2ps(sum, sum);

  c.vandps(last_bit, x, s.emitter().integer(0x7F800000));
  c.vpsubd(last_bit, last_bit, s.emitter().integer(23U << 23));
  c.vmaxps(last_bit, last_bit, s.constant(0x1p-37F));
  c.vandps(size, x, s.emitter().integer(~sign_bit));
  c.vfmadd213ps(sum, last_bit, size);
  round_to_half(s, y, sum, towards_zero);

  // That is never infinite where the number is not. A NaN, in the second operand, stays.
  c.vcmpps(sum, size, s.constant(65520), not_less);
  c.vandps(sum, sum, s.emitter().integer(0x7F800000));
  c.vmaxps(y, sum, y);
  c.vandps(sum, x, s.emitter().integer(sign_bit));
  c.vorps(y, y, sum);
  return y;
}

Ymm isnan(Step& s) {
  const Ymm x = s.reg(0);
  return compare(s, x, x, unordered);
}

Ymm isinf(Step& s) {
  const Ymm size = abs(s);
  return compare(s, size, s.constant(std::numeric_limits<float>::infinity()), eq);
}

// Types of arguments: f number, h half, i integer, b truth value.
struct Instruction {
  std::string_view name, types;
  EmitStep emit;
  bool (*fits)(const BodyStep&) = nullptr;
};

// clang-format off
constexpr Instruction instructions[] = {
    {"add", "ff", add},
    {"add", "ii", binary<&Code::vpaddd>, adds_once},
    {"sub", "ff", sub},
    {"sub", "ii", binary<&Code::vpsubd>, adds_once},
    {"rsub", "ff", rsub},
    {"mul", "ff", binary<&Code::vmulps>},
    {"mul", "ii", binary<&Code::vpmulld>},
    {"mul", "bb", binary<&Code::vandps>},
    {"div", "ff", binary<&Code::vdivps>},
    {"neg", "f", neg},
    {"abs", "f", abs},
    {"sign", "f", sign},
    {"sqrt", "f", sqrt},
    {"rsqrt", "f", rsqrt},
    {"reciprocal", "f", reciprocal},
    {"pow", "ff", pow, has_short_power},
    {"clamp", "f", clamp},
    {"addcmul", "fff", addcmul},
    {"addcdiv", "fff", addcdiv},
    {"lerp", "fff", lerp},
    {"floor", "f", rounded<1>},
    {"ceil", "f", rounded<2>},
    {"trunc", "f", rounded<3>},
    {"round", "f", rounded<0>},
    {"maximum", "ff", [](Step& s) { const Ymm a = s.reg(0); return winner<&Code::vmaxps>(s, a, s.source(1)); }},
    {"minimum", "ff", [](Step& s) { const Ymm a = s.reg(0); return winner<&Code::vminps>(s, a, s.source(1)); }},

    {"eq", "ff", comparison<eq>},
    {"ne", "ff", comparison<ne>},
    {"lt", "ff", comparison<lt>},
    {"le", "ff", comparison<le>},
    {"gt", "ff", comparison<gt>},
    {"ge", "ff", comparison<ge>},
    {"eq", "ii", integer_comparison<Order::equal, true>},
    {"ne", "ii", integer_comparison<Order::equal, false>},
    {"lt", "ii", integer_comparison<Order::less, true>},
    {"le", "ii", integer_comparison<Order::greater, false>},
    {"gt", "ii", integer_comparison<Order::greater, true>},
    {"ge", "ii", integer_comparison<Order::less, false>},
    {"eq", "bb", equal_masks},
    {"ne", "bb", binary<&Code::vxorps>},
    {"logical_and", "bb", binary<&Code::vandps>},
    {"logical_or", "bb", binary<&Code::vorps>},
    {"logical_xor", "bb", binary<&Code::vxorps>},
    {"logical_and", "ff", logic_of_numbers<&Code::vandps>},
    {"logical_or", "ff", logic_of_numbers<&Code::vorps>},
    {"logical_xor", "ff", logic_of_numbers<&Code::vxorps>},
    {"logical_not", "b", not_mask},
    {"logical_not", "i", integer_is_zero},
    {"logical_not", "f", [](Step& s) { return compare(s, s.reg(0), s.constant(0), eq); }},
    {"bitwise_and", "bb", binary<&Code::vandps>},
    {"bitwise_or", "bb", binary<&Code::vorps>},
    {"bitwise_xor", "bb", binary<&Code::vxorps>},
    {"bitwise_not", "b", not_mask},
    {"isnan", "f", isnan},
    {"isinf", "f", isinf},
    {"where", "bff", where},
    {"where", "bii", where},
    {"where", "bbb", where},
    {"masked_fill", "fbf", masked_fill},
    {"masked_fill", "ibi", masked_fill},
    {"cast", "b", cast_mask, casts_to_known},
    {"cast", "f", cast_number, casts_to_known},
    {"cast", "h", cast_number, casts_to_known},
    {"cast", "i", cast_integer, casts_to_known},
    {"stochastic_cast", "f", stochastic_cast},

    {"relu", "f", relu},
    {"leaky_relu", "f", leaky_relu},
    {"leaky_relu_backward", "ff", leaky_relu_backward},
    {"threshold", "f", threshold},
    {"threshold_backward", "ff", threshold_backward},
    {"hardtanh", "f", hardtanh},
    {"hardtanh_backward", "ff", hardtanh_backward},
    {"hardsigmoid", "f", hardsigmoid},
    {"hardsigmoid_backward", "ff", hardsigmoid_backward},
    {"hardswish", "f", hardswish},
    {"hardswish_backward", "ff", hardswish_backward},
    {"exp", "f", unary<fused::exp>},
    {"log", "f", unary<fused::log>},
    {"log1p", "f", unary<fused::log1p>},
    {"tanh", "f", unary<fused::tanh>},
    {"erf", "f", unary<fused::erf>},
    {"sigmoid", "f", unary<fused::sigmoid>},
    {"sigmoid_backward", "ff", sigmoid_backward},
    {"tanh_backward", "ff", tanh_backward},
    {"silu", "f", silu},
    {"silu_backward", "ff", silu_backward},
    {"gelu", "f", gelu},
    {"gelu_backward", "ff", gelu_backward},
    {"elu", "f", elu},
    {"elu_backward", "ff", elu_backward},
    {"softplus", "f", softplus},
    {"softplus_backward", "ff", softplus_backward},
};
// clang-format on

DType type_of(char letter) {
  switch (letter) {
    case 'f':
      return DType::f32;
    case 'h':
      return DType::f16;
    case 'i':
      return DType::i32;
    default:
      return DType::boolean;
  }
}

bool matches(std::string_view types, std::span<const DType> arguments) {
  if (types.size() != arguments.size()) return false;
  for (size_t i = 0; i < types.size(); ++i) {
    if (arguments[i] != type_of(types[i])) return false;
  }
  return true;
}

}  // namespace

Xbyak::Address FusedStep::constant(const BodyValue& number) {
  if (number.dtype == DType::f32) return emitter_.number(static_cast<float>(number.number));
  if (number.dtype == DType::f16) {
    return emitter_.number(to_float(to_half(static_cast<float>(number.number))));
  }
  if (number.dtype == DType::boolean) return emitter_.integer(number.number != 0 ? all_bits : 0);
  return emitter_.integer(static_cast<uint32_t>(convert<int32_t>(number.number)));
}

Ymm FusedStep::reg(size_t i) {
  const BodyValue& value = step_.arguments[i];
  if (value.from == BodyValue::From::number) return emitter_.load(constant(value));
  return emitter_.reg(value.index + (value.from == BodyValue::From::step ? operands_ : 0));
}

FusedEmitter::Source FusedStep::source(size_t i) {
  const BodyValue& value = step_.arguments[i];
  if (value.from == BodyValue::From::number) return FusedEmitter::Source(constant(value));
  return emitter_.source(value.index + (value.from == BodyValue::From::step ? operands_ : 0));
}

void FusedStep::load_rounding(const Ymm& to, size_t offset) {
  auto& c = code();
  const size_t at = number_ * sizeof(RoundingStream) + offset;
  c.mov(c.rax, c.ptr[c.rdi + static_cast<int>(offsetof(FusedRow, rounding))]);
  c.vpbroadcastd(to, c.dword[c.rax + static_cast<int>(at)]);
}

Ymm FusedStep::zero() {
  const Ymm y = fresh();
  code().vxorps(y, y, y);
  return y;
}

EmitStep find_instruction(const BodyStep& step, std::span<const DType> arguments) {
  for (const Instruction& instruction : instructions) {
    if (instruction.name != step.op || !matches(instruction.types, arguments)) continue;
    if (!instruction.fits || instruction.fits(step)) return instruction.emit;
  }
  return nullptr;
}

}  // namespace tessera::cpu
