// The last stages of lowering: a kernel for every call, then buffers with offsets.
#pragma once

#include <vector>

#include "tessera/backend/cpu/kernels/tuner.h"
#include "tessera/backend/cpu/lower/draft.h"
#include "tessera/backend/cpu/plan.h"

namespace tessera::cpu {

// For the calls of `draft`, in their order.
std::vector<KernelChoice> choose_kernels(const Draft& draft, KernelTuner& tuner);

Plan write_plan(const Draft& draft, const std::vector<KernelChoice>& kernels);

}  // namespace tessera::cpu
