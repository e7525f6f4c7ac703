// Whether a pipeline has enough micro-batches to fill its stages.
#pragma once

#include <cstdint>

#include "tessera/api/options/options.h"

namespace tessera {

// Error where it has not. `stages` is how often work goes on from one device to another, and one
// more.
void check_pipeline(const Options& options, int64_t stages, bool training);

}  // namespace tessera
