// The key of Philox for one operator: for kernels that draw many counters at once.
#pragma once

#include <cstdint>

namespace tessera {

uint64_t random_stream(uint64_t seed, uint64_t key);

}  // namespace tessera
