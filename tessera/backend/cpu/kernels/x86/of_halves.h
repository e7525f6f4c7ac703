// Entries on operands that are halves. One that reads halves itself (KernelEntry::reads_halves) is
// given them as they lie; for others they are widened into the workspace first, with their strides,
// so that the kernel does what it does with f32.
#pragma once

#include <memory>
#include <vector>

#include "tessera/backend/cpu/kernels/table.h"

namespace tessera::cpu {

// What the entry sees of a use of its row.
class HalvesUse {
 public:
  HalvesUse(const KernelEntry& entry, const KernelUse& use);
  HalvesUse(const HalvesUse&) = delete;
  HalvesUse& operator=(const HalvesUse&) = delete;

  KernelUse use() const { return {use_.op, use_.attrs, inputs_, use_.outputs, use_.target}; }
  bool widens() const { return widens_; }

 private:
  const KernelUse& use_;
  std::vector<KernelOperand> inputs_;
  bool widens_ = false;
};

// The entry's kernel for the use itself.
std::unique_ptr<PreparedKernel> prepare_on_halves(const KernelEntry& entry, const KernelUse& use);

}  // namespace tessera::cpu
