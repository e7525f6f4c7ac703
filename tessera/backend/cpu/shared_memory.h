// What the engines of all replicas of a program have together, once: constants, hyper-parameters
// and the states that are the same in all of them. An engine that runs alone has it for itself.
//
// A state is each replica's own where micro-batches write it (accumulators, buffers that forward
// changes) or where replicas differ in it. A call of the update runs in every replica where it
// writes a state of the replica's own, and where it makes what such a call or a collective reads;
// all others run in the first replica alone, for all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/backend/cpu/memory.h"
#include "tessera/backend/cpu/plan.h"

namespace tessera::cpu {

class SharedMemory {
 public:
  // `replicas` of a plan; `differing`: states of which they have different values, by number.
  explicit SharedMemory(const Plan& plan, int64_t replicas = 1,
                        const std::vector<size_t>& differing = {});

  bool is_own(size_t state) const { return own_[state]; }
  // Whether all replicas run that call, by its number in the plan, or only the first.
  bool runs_everywhere(size_t call) const { return everywhere_[call]; }

  // Where a state lies: in the memory below, or in one of own_state_bytes() that each replica has.
  int64_t state_offset(size_t state) const { return offsets_[state]; }
  int64_t own_state_bytes() const { return own_bytes_; }

  std::byte* states() const { return states_.data(); }
  std::byte* hyperparameters() const { return hyperparameters_.data(); }
  std::byte* constants() const { return constants_.data(); }
  int64_t bytes() const { return states_.bytes() + hyperparameters_.bytes() + constants_.bytes(); }

 private:
  std::vector<bool> own_;         // by state
  std::vector<bool> everywhere_;  // by call
  std::vector<int64_t> offsets_;  // by state
  int64_t own_bytes_ = 0;
  Memory states_, hyperparameters_, constants_;
};

}  // namespace tessera::cpu
