// Runs a prepared kernel as an engine does. Whatever lay in the workspace before must not matter,
// and only the first runs may allocate: threads fill what they keep, and one may come late.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "tessera/backend/cpu/kernels/stateful_kernel.h"
#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/memory.h"
#include "tessera/base/allocations_for_test.h"

namespace tessera::cpu {

class KernelRun {
 public:
  explicit KernelRun(const PreparedKernel& kernel)
      : kernel_(kernel),
        stateful_(dynamic_cast<const StatefulKernel*>(&kernel)),
        state_(stateful_ ? stateful_->make_state() : nullptr),
        workspace_(kernel.workspace_bytes()) {}

  void operator()(const KernelCall& call) const {
    const auto size = static_cast<size_t>(workspace_.bytes());
    if (size > 0) std::memset(workspace_.data(), 0xff, size);
    const std::span<std::byte> room(workspace_.data(), size);
    if (stateful_) {
      stateful_->run(*state_, call, room);
    } else {
      kernel_.run(call, room);
    }
  }

 private:
  const PreparedKernel& kernel_;
  const StatefulKernel* stateful_;
  std::unique_ptr<KernelState> state_;
  Memory workspace_;
};

// Once.
inline void run_kernel(const PreparedKernel& kernel, const KernelCall& call) {
  KernelRun{kernel}(call);
}

// Until a run has allocated nothing, which must happen soon. No result lies over an operand.
inline void run_kernel_often(const PreparedKernel& kernel, const KernelCall& call) {
  const KernelRun run(kernel);
  run(call);
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < 20 && fewest > 0; ++i) {
    const AllocationsSince before;
    run(call);
    fewest = std::min(fewest, before.blocks());
  }
  EXPECT_EQ(fewest, 0) << "blocks of memory in every run";
}

// The kernel that was chosen, as an engine runs it; what it is compared with, once.
inline void run_kernel_of(const KernelChoice& choice, const PreparedKernel& kernel,
                          const KernelCall& call) {
  &kernel == choice.kernel.get() ? run_kernel_often(kernel, call) : run_kernel(kernel, call);
}

}  // namespace tessera::cpu
