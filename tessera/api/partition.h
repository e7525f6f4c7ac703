// Which samples of a dataset each of several processes loads. All of them must agree, and take the
// same number of steps: whoever has one batch less would let the others wait for ever.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tessera/api/options/options.h"

namespace tessera {

// The samples [first, first + count) of an order that all processes have in common.
struct Partition {
  int64_t first = 0;
  int64_t count = 0;
  // Samples after the last whole round of such parts. Where the order is shuffled, every second
  // epoch begins so much later, so that they are used too.
  int64_t leftovers = 0;

  int64_t first_in(int64_t epoch) const { return first + (epoch % 2 == 0 ? 0 : leftovers); }
};

// The part of process `process_id` of `num_processes`. With drop_last parts are whole multiples of
// `step`, a combined batch, and equal; else they differ by one sample at most. Error where there is
// no combined batch for each process.
Partition partition(int64_t samples, int64_t step, int64_t process_id, int64_t num_processes,
                    bool drop_last);

// The seed of an order that all processes shuffle alike: the options' randomSeed. Assertion Error
// where it is not set.
int64_t common_shuffle_seed(const Options& options);

// A permutation for each epoch, the same ones wherever the seed is the same; nobody else's random
// numbers are touched.
class CommonShuffle {
 public:
  explicit CommonShuffle(int64_t seed);
  at::Tensor next(int64_t samples);

 private:
  at::Generator generator_;
};

}  // namespace tessera
