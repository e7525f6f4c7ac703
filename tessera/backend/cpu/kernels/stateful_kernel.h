// A prepared kernel that needs objects which cannot be made without allocating, and which change
// when it runs: arguments of a library's primitives. Every engine makes them once, when it binds
// its calls, and hands them to its runs.
#pragma once

#include <memory>

#include "tessera/backend/cpu/kernels/prepared_kernel.h"

namespace tessera::cpu {

class KernelState {
 public:
  virtual ~KernelState() = default;
};

class StatefulKernel : public PreparedKernel {
 public:
  // Must not outlive the kernel. One run at a time uses it.
  virtual std::unique_ptr<KernelState> make_state() const = 0;
  // `state` is one that make_state() has made.
  virtual void run(KernelState& state, const KernelCall& call,
                   std::span<std::byte> workspace) const = 0;

  // Where the caller keeps no state, it is made for this run alone.
  void run(const KernelCall& call, std::span<std::byte> workspace) const final {
    run(*make_state(), call, workspace);
  }
};

}  // namespace tessera::cpu
