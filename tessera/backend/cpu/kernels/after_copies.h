// Kernels that want dense operands, for operands that are views with other strides: a slice of
// channels, one of the planes of a label. Such operands are copied first, into the workspace: still
// far faster than a reference kernel that goes through strides element by element.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "tessera/backend/cpu/kernels/table.h"

namespace tessera::cpu {

// A use with all of its plain operands dense.
class DenseUse {
 public:
  explicit DenseUse(const KernelUse& use);
  DenseUse(const DenseUse&) = delete;
  DenseUse& operator=(const DenseUse&) = delete;

  KernelUse use() const { return {use_.op, use_.attrs, inputs_, use_.outputs, use_.target}; }
  bool differs() const { return differs_; }

 private:
  const KernelUse& use_;
  std::vector<KernelOperand> inputs_;
  bool differs_ = false;
};

// Runs a kernel that was prepared for the DenseUse of `use`.
std::unique_ptr<PreparedKernel> after_copies(const KernelUse& use,
                                             std::unique_ptr<PreparedKernel> kernel);

// The two functions of an entry that copies and then does as another one.
template <bool (*applies)(const KernelUse&)>
bool applies_after_copies(const KernelUse& use) {
  const DenseUse dense(use);
  return dense.differs() && applies(dense.use());
}
template <std::unique_ptr<PreparedKernel> (*prepare)(const KernelUse&)>
std::unique_ptr<PreparedKernel> prepare_after_copies(const KernelUse& use) {
  return after_copies(use, prepare(DenseUse(use).use()));
}

}  // namespace tessera::cpu
