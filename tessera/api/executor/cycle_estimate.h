// Device cycles of a step, estimated from the work its operators do: each spread evenly over the
// tiles of one IPU (Mk2), with a fixed cost to start it. It knows neither layouts nor memory
// limits, and leaves out waiting for the host. Equal programs have equal estimates, on any machine.
#pragma once

#include <cstdint>

#include "tessera/ir/graph.h"

namespace tessera {

int64_t estimated_cycles(const Graph& step, int64_t device_iterations,
                         int64_t gradient_accumulation);

}  // namespace tessera
