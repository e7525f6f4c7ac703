// Rounding to half precision by chance: a number between two halves becomes the upper one as often
// as its distance to the lower one is a part of the gap, so that the mean over many roundings is
// the number itself. What is exactly a half stays what it is, whatever its size or sign. Beyond the
// largest finite half, 65504, there is nothing to choose from: numbers from there on become what is
// nearest, infinity from 65520 on. Infinities and NaN stay.
//
// A float has 13 bits more than a half: so many random bits below the last one of the half, added
// to it, carry into it as often as they should. Below 2^-14, where halves lie evenly, there may be
// more bits than that; means are right to 2^-37 there.
//
// The chance is a function of seed, replica, step, the operator's key and the element, as all
// random numbers are (rng.h), but of a lighter kind: vectors of it take half a dozen instructions.
#pragma once

#include <bit>
#include <cstdint>

#include "tessera/base/half.h"
#include "tessera/base/rng.h"

namespace tessera {

// What all elements of one rounding have in common.
struct RoundingStream {
  uint32_t first = 0, second = 0;
};

inline RoundingStream rounding_stream(const RngState& state, uint64_t key) {
  const auto words = random_words(state, key, 0);
  return {words[0], words[1]};
}

// Parts of it for code that does the same with vectors.
struct RoundingWord {
  static constexpr uint32_t step = 0x9E3779B9, factor = 0xCD9E8D57;
  static constexpr int shift = 16;
  static constexpr int bits = 13;  // that are used, the upper ones
};

// A random word for an element, by its place in row-major order. Only its upper bits are good. From
// one element to another there is only an addition: loops need not multiply by `step`.
constexpr uint32_t rounding_word(RoundingStream stream, uint32_t element) {
  const uint32_t x = (element * RoundingWord::step + stream.first) ^ stream.second;
  return (x ^ x >> RoundingWord::shift) * RoundingWord::factor;
}

// Of the bits that a float has and a half has not, the last one's part of a number of that size.
constexpr float last_bit_of(uint32_t bits) {
  constexpr float smallest = 0x1p-37F;
  const uint32_t exponent = bits & 0x7F800000U;
  if (exponent < std::bit_cast<uint32_t>(0x1p-14F)) return smallest;
  return std::bit_cast<float>(exponent - (23U << 23));
}

constexpr Half to_half(float value, uint32_t word) {
  constexpr float largest = 65504, smallest = 0x1p-24F;
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto size = std::bit_cast<float>(bits & 0x7FFFFFFFU);
  if (!(size < largest)) return to_half(value);
  const auto chance = static_cast<float>(word >> (32 - RoundingWord::bits));
  const float sum = size + chance * last_bit_of(bits);  // the product is exact
  const float lower = sum < 0x1p-14F
                          ? static_cast<float>(static_cast<int32_t>(sum / smallest)) * smallest
                          : std::bit_cast<float>(std::bit_cast<uint32_t>(sum) & 0x7FFFE000U);
  const Half rounded = to_half(lower);  // is one exactly
  return {static_cast<uint16_t>(rounded.bits | (bits >> 16 & 0x8000U))};
}

}  // namespace tessera
