// Random numbers from a counter: a pure function of seed, replica, step, the operator's key and the
// element, so that neither threads nor recomputation change them, and replicas draw independently.
#pragma once

#include <array>
#include <cstdint>

namespace tessera {

// What a running program knows about randomness: the user's seed, how many micro-batches ran, and
// which replica it is. The first replica draws what a program alone draws.
struct RngState {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint32_t replica = 0;

  bool operator==(const RngState&) const = default;
};

// Philox4x32-10: four random words for one counter.
std::array<uint32_t, 4> random_words(const RngState& state, uint64_t key, uint64_t counter);

inline float uniform_from_word(uint32_t word) {  // in [0, 1)
  return static_cast<float>(word >> 8) * 0x1.0p-24F;
}

}  // namespace tessera
