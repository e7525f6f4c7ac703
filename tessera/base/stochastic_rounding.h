// Rounding to half precision by chance: a number between two halves becomes the upper one as often
// as its distance to the lower one is a part of the gap, so that the mean over many roundings is
// the number itself. What is exactly a half stays what it is, whatever its size or sign. Beyond the
// largest finite half, 65504, there is nothing to choose from: numbers from there on become what is
// nearest, infinity from 65520 on. Infinities and NaN stay.
//
// The chance is a function of seed, replica, step, the operator's key and the element, as all
// random numbers are (rng.h), but of a lighter kind: vectors of it take a dozen instructions.
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
  static constexpr uint32_t first_factor = 0xD2511F53, second_factor = 0xCD9E8D57;
  static constexpr int first_shift = 16, second_shift = 15;
};

// A random word for an element, by its place in row-major order. Only its upper bits are good.
constexpr uint32_t rounding_word(RoundingStream stream, uint32_t element) {
  uint32_t x = element ^ stream.first;
  x = (x ^ x >> RoundingWord::first_shift) * RoundingWord::first_factor;
  x ^= stream.second;
  return (x ^ x >> RoundingWord::second_shift) * RoundingWord::second_factor;
}

// Of 2^23 numbers between 0 and 1, evenly spaced, none of them 0 or 1.
constexpr float part_of_gap(uint32_t word) {
  return std::bit_cast<float>(0x3F800000U | word >> 9) - (1 - 0x1p-24F);
}

constexpr Half to_half(float value, uint32_t word) {
  constexpr float largest = 65504, smallest = 0x1p-24F;
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto size = std::bit_cast<float>(bits & 0x7FFFFFFFU);
  if (!(size < largest)) return to_half(value);
  float lower = 0, gap = smallest;
  if (size >= 0x1p-14F) {
    lower = std::bit_cast<float>(bits & 0x7FFFE000U);
    gap = std::bit_cast<float>((bits & 0x7F800000U) - (10U << 23));
  } else {
    lower = static_cast<float>(static_cast<int32_t>(size * 0x1p24F)) * smallest;
  }
  const bool up = part_of_gap(word) * gap < size - lower;
  const Half rounded = to_half(lower + (up ? gap : 0));  // is one exactly
  return {static_cast<uint16_t>(rounded.bits | (bits >> 16 & 0x8000U))};
}

}  // namespace tessera
