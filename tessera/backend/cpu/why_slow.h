// What keeps a plan from being faster: calls of PyTorch's own kernels, calls of the plain reference
// kernels, conversions and copies that are left. With what each of them moves, the largest first.
#pragma once

#include <string>

#include "tessera/backend/cpu/plan.h"

namespace tessera::cpu {

std::string why_slow(const Plan& plan);

}  // namespace tessera::cpu
