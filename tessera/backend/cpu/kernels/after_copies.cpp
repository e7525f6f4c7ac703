#include "tessera/backend/cpu/kernels/after_copies.h"

#include <algorithm>

#include "tessera/backend/cpu/kernels/copy.h"
#include "tessera/backend/cpu/plan.h"
#include "tessera/base/error.h"

namespace tessera::cpu {
namespace {

constexpr size_t most_operands = 8;

bool needs_copy(const KernelOperand& operand) {
  return operand.present && operand.layout.plain() &&
         !same_elements(operand.geometry, dense(operand.geometry.shape));
}

// An operand that is copied, and where in the workspace to.
struct Copied {
  size_t operand = 0;
  Geometry to;
  int64_t offset = 0;
};

class AfterCopies : public PreparedKernel {
 public:
  AfterCopies(const KernelUse& use, std::unique_ptr<PreparedKernel> kernel)
      : kernel_(std::move(kernel)), own_bytes_(aligned(kernel_->workspace_bytes())) {
    TESSERA_INVARIANT(use.inputs.size() <= most_operands, "{} operands are too many to be copied",
                      use.inputs.size());
    int64_t offset = own_bytes_;
    for (size_t i = 0; i < use.inputs.size(); ++i) {
      const KernelOperand& operand = use.inputs[i];
      if (!needs_copy(operand)) continue;
      copied_.push_back({i, dense(operand.geometry.shape), offset});
      const auto element = static_cast<int64_t>(size_of(operand.dtype));
      offset += aligned(numel(operand.geometry.shape) * element);
    }
    bytes_ = offset;
  }

  int64_t workspace_bytes() const override { return bytes_; }

  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    std::array<TensorView, most_operands> inputs;
    std::copy(call.inputs.begin(), call.inputs.end(), inputs.begin());
    for (const Copied& copied : copied_) {
      TensorView& input = inputs[copied.operand];
      std::byte* to = workspace.data() + copied.offset;
      copy_dense(input, to, call.pool);
      input = {to, input.dtype, copied.to.shape, copied.to.strides};
    }
    KernelCall inner = call;
    inner.inputs = {inputs.data(), call.inputs.size()};
    kernel_->run(inner, workspace.first(static_cast<size_t>(own_bytes_)));
  }

 private:
  std::unique_ptr<PreparedKernel> kernel_;
  int64_t own_bytes_, bytes_ = 0;
  std::vector<Copied> copied_;
};

}  // namespace

DenseUse::DenseUse(const KernelUse& use)
    : use_(use), inputs_(use.inputs.begin(), use.inputs.end()) {
  for (KernelOperand& operand : inputs_) {
    if (!needs_copy(operand)) continue;
    operand.geometry = dense(operand.geometry.shape);
    differs_ = true;
  }
}

std::unique_ptr<PreparedKernel> after_copies(const KernelUse& use,
                                             std::unique_ptr<PreparedKernel> kernel) {
  return std::make_unique<AfterCopies>(use, std::move(kernel));
}

}  // namespace tessera::cpu
