// The second face of a contraction's kernel that can hand out its result box by box, each while it
// still lies in the cache of the thread that made it.
#pragma once

#include "tessera/backend/cpu/kernels/epilogue.h"
#include "tessera/backend/cpu/kernels/stateful_kernel.h"

namespace tessera::cpu {

class EpilogueKernel {
 public:
  virtual ~EpilogueKernel() = default;

  // Boxes are counted in the physical dimensions of the result. They have rooms of their own where
  // the kernel was prepared for a result of halves: the call's result has no memory then. `state`
  // is the kernel's own where it is a StatefulKernel, and not looked at otherwise.
  virtual void run_with_epilogue(KernelState& state, const KernelCall& call,
                                 std::span<std::byte> workspace,
                                 const Epilogue& epilogue) const = 0;
};

}  // namespace tessera::cpu
