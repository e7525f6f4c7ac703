// The key of Philox for one operator of one replica: for kernels that draw many counters at once.
#pragma once

#include <cstdint>

#include "tessera/base/rng.h"

namespace tessera {

uint64_t random_stream(const RngState& state, uint64_t key);

}  // namespace tessera
