// A kernel made ready for one call at compile time: shapes, strides and attributes are known, code
// is generated, and what remains is to run it on memory. It holds nothing that changes, so that any
// number of engines may run it at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/ops/kernel_call.h"

namespace tessera::cpu {

class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;

  // Memory for use during run(): aligned as the arena is, contents undefined.
  virtual int64_t workspace_bytes() const { return 0; }
  virtual void run(const KernelCall& call, std::span<std::byte> workspace) const = 0;
};

}  // namespace tessera::cpu
