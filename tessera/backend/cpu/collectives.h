// The calls of a plan in which replicas meet, and when each could begin: the gradients of the last
// layers are whole long before the backward pass has ended.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "tessera/backend/cpu/plan.h"

namespace tessera::cpu {

bool is_collective(const Plan& plan, const Call& call);

struct Collective {
  size_t call = 0;
  // From the end of this call of the last micro-batch on its operands are whole, and nobody else
  // touches their memory: it may begin there, and leave its sums in their place. Nothing where it
  // cannot begin before its turn.
  std::optional<size_t> whole_after = {};
};

// In the order of the calls: the same numbers on every replica.
std::vector<Collective> collectives_of(const Plan& plan);

}  // namespace tessera::cpu
