// Fused element-wise operators and sums where no code can be generated for them: by the kernels of
// their steps, made ready once.
#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/ops/fused_interpreter.h"

namespace tessera::cpu {
namespace {

class InterpretedKernel : public PreparedKernel {
 public:
  InterpretedKernel(const FusedBody& body, std::span<const Geometry> operands)
      : interpreter_(body, operands) {}

  int64_t workspace_bytes() const override { return interpreter_.workspace_bytes(); }
  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    interpreter_.run(call, workspace);
  }

 private:
  const FusedInterpreter interpreter_;
};

bool applies(const KernelUse&) { return true; }

std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  std::vector<Geometry> operands;
  for (const KernelOperand& operand : use.inputs) operands.push_back(operand.geometry);
  return std::make_unique<InterpretedKernel>(use.attrs.body("body"), operands);
}

}  // namespace

std::span<const KernelEntry> interpreted_entries() {
  static constexpr KernelEntry entries[] = {
      {.op = "map",
       .name = "interpreted",
       .applies = applies,
       .prepare = prepare,
       .last_resort = true},
      {.op = "map_reduce",
       .name = "interpreted",
       .applies = applies,
       .prepare = prepare,
       .last_resort = true},
  };
  return entries;
}

}  // namespace tessera::cpu
