// What sums of products are kept in on the way: floats, or halves as a device with half partials
// keeps them.
//
// In halves the products of a sum are taken in the order of the depth, in blocks of 16. Those of a
// block are added up in float32, one after the other from zero on. The sum of a block is added to
// the partial, which is a half, in float32, and the result is rounded to be the partial again. A
// partial takes up at most 64 blocks, a stretch: longer sums have several of them, as a device has
// that cuts them up between its tiles, and these are added up in float32, in order. The result is a
// float: what is added to it, a bias, is added to that.
//
// A depth may consist of runs, at whose ends blocks end too: the channels that a convolution reads
// at one place of its kernel are one.
//
// A product of two halves is exactly a float. So bits depend on nothing but this order, neither on
// threads nor on the level of the CPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/base/divided_up.h"
#include "tessera/base/stochastic_rounding.h"

namespace tessera::kernels {

// How the sums of one operator are kept.
struct Partials {
  bool half = false;
  // Of halves: rounded by chance, which depends on `rng` and `key`, the place of the sum in the
  // result and the number of the block; or to nearest.
  bool by_chance = false;
  RngState rng = {};
  uint64_t key = 0;
};

// A depth as blocks.
class PartialBlocks {
 public:
  static constexpr int64_t block_depth = 16;
  static constexpr int64_t stretch_blocks = 64;

  PartialBlocks(int64_t depth, int64_t run)
      : run_(run),
        per_run_(divided_up(run, block_depth)),
        count_(run == 0 ? 0 : depth / run * per_run_) {}

  int64_t count() const { return count_; }
  int64_t stretches() const { return divided_up(count_, stretch_blocks); }
  int64_t begin(int64_t block) const {
    return per_run_ == 0 ? 0 : block / per_run_ * run_ + block % per_run_ * block_depth;
  }
  int64_t size(int64_t block) const {
    return std::min(block_depth, run_ - block % per_run_ * block_depth);
  }

 private:
  int64_t run_, per_run_, count_;
};

// What the roundings after a block have in common. (The first words of a key are a cast's.)
inline RoundingStream rounding_of_block(const Partials& partials, int64_t block) {
  const auto words = random_words(partials.rng, partials.key, static_cast<uint64_t>(block) + 1);
  return {words[0], words[1]};
}

}  // namespace tessera::kernels
