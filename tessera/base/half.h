// A number of half precision (IEEE 754 binary16) as it lies in memory: 1 bit of sign, 5 of
// exponent, 10 of fraction. It is a type to store, not to compute with: arithmetic is that of
// float, rounded once when a result is stored.
//
// Every Half is exactly a float. A float becomes the nearest Half, of two equally near ones the
// even one; from 65520 on that is infinity, below 2^-14 the numbers lie evenly, 2^-24 apart. A NaN
// stays one: quiet, with as much of its payload as there is room for.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace tessera {

struct Half {
  uint16_t bits = 0;

  bool operator==(const Half&) const = default;  // of bits: 0 is not -0, and a NaN is itself
};

constexpr float to_float(Half half) {
  const uint32_t sign = (half.bits & 0x8000U) << 16;
  const uint32_t rest = half.bits & 0x7FFFU;
  constexpr uint32_t exponent_difference = (127U - 15U) << 23;
  if (rest > 0x7C00U) return std::bit_cast<float>(sign | 0x7FC00000U | rest << 13);
  if (rest == 0x7C00U) return std::bit_cast<float>(sign | 0x7F800000U);
  if (rest >= 0x0400U) return std::bit_cast<float>(sign | ((rest << 13) + exponent_difference));
  const float magnitude = static_cast<float>(rest) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

constexpr Half to_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000U);
  const uint32_t rest = bits & 0x7FFFFFFFU;
  constexpr uint32_t exponent_difference = (127U - 15U) << 23;
  const auto with_sign = [sign](uint32_t magnitude) {
    return Half{static_cast<uint16_t>(sign | magnitude)};
  };
  if (rest > 0x7F800000U) return with_sign(0x7E00U | (rest >> 13 & 0x03FFU));
  if (rest >= std::bit_cast<uint32_t>(65536.0F)) return with_sign(0x7C00U);
  if (rest < std::bit_cast<uint32_t>(0x1p-14F)) {
    // Between a half and one, floats lie 2^-24 apart: adding a half rounds to that.
    const float shifted = std::bit_cast<float>(rest) + 0.5F;
    return with_sign(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5F));
  }
  // A carry out of the fraction counts the exponent up, at last to that of infinity.
  const uint32_t rounded = rest + 0x0FFFU + (rest >> 13 & 1U);
  return with_sign((rounded - exponent_difference) >> 13);
}

// to_float(to_half(value)), in a form that compilers make vector code of. A NaN stays as it is.
constexpr float rounded_to_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rest = bits & 0x7FFFFFFFU;
  constexpr uint32_t infinity = 0x7F800000U;
  // What has no room in a half has none beside a number 2^13 times as large, either.
  const uint32_t exponent = rest & infinity;
  const uint32_t least = std::bit_cast<uint32_t>(0x1p-14F);
  const uint32_t most = std::bit_cast<uint32_t>(32768.0F);
  const uint32_t in_range = exponent < least ? least : exponent > most ? most : exponent;
  const auto beside = std::bit_cast<float>(in_range + (13U << 23));
  const float rounded = (std::bit_cast<float>(rest) + beside) - beside;
  const uint32_t finite = rounded < 65536 ? std::bit_cast<uint32_t>(rounded) : infinity;
  return std::bit_cast<float>((bits & 0x80000000U) | (rest > infinity ? rest : finite));
}

// The next number towards minus infinity, of one that is finite or positive infinity; 0 and -0 are
// the same one.
constexpr Half next_below(Half half) {
  if ((half.bits & 0x7FFFU) == 0) return {0x8001};
  return {static_cast<uint16_t>(half.bits & 0x8000U ? half.bits + 1 : half.bits - 1)};
}

// Many at once, with the instructions for it where the compiler may use them. Both have the same
// length and do not overlap.
void widen(std::span<const Half> from, std::span<float> to);
void narrow(std::span<const float> from, std::span<Half> to);

}  // namespace tessera
