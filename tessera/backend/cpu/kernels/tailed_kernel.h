// A contraction's kernel that can hand out its result box by box, each while it still lies in the
// cache of the thread that made it.
#pragma once

#include "tessera/backend/cpu/kernels/prepared_kernel.h"
#include "tessera/backend/cpu/kernels/tail.h"

namespace tessera::cpu {

class TailedKernel : public PreparedKernel {
 public:
  // Boxes are counted in the physical dimensions of the result.
  virtual void run_with_tail(const KernelCall& call, std::span<std::byte> workspace,
                             const Tail& tail) const = 0;

  void run(const KernelCall& call, std::span<std::byte> workspace) const final {
    run_with_tail(call, workspace, Tail{});
  }
};

}  // namespace tessera::cpu
