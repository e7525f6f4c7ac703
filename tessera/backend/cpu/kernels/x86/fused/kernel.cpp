// Fused element-wise operators and sums by generated code.
#include "tessera/backend/cpu/kernels/x86/fused/program.h"
#include "tessera/base/error.h"

namespace tessera::cpu {
namespace {

constexpr int64_t finished_rows = 256;  // of sums, by one thread

class FusedKernel : public PreparedKernel {
 public:
  explicit FusedKernel(std::unique_ptr<const FusedProgram> program)
      : program_(std::move(program)) {}

  int64_t workspace_bytes() const override { return program_->workspace_bytes(); }

  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    auto* sums = reinterpret_cast<double*>(workspace.data());
    call.pool.run(program_->pieces(), [&](int64_t piece) {
      program_->run(piece, call.inputs, call.outputs, call.rng, sums);
    });
    if (program_->sum_count() == 0) return;
    call.pool.run_ranges(program_->kept_rows(), finished_rows, [&](int64_t begin, int64_t end) {
      program_->finish(begin, end, call.outputs, sums);
    });
  }

 private:
  const std::unique_ptr<const FusedProgram> program_;
};

bool applies(const KernelUse& use) { return FusedProgram::fits(use.attrs.body("body"), use); }

std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  auto program = FusedProgram::make(use.attrs.body("body"), use);
  TESSERA_INVARIANT(program, "a fused body that applied has no code");
  return std::make_unique<FusedKernel>(std::move(program));
}

}  // namespace

std::span<const KernelEntry> fused_entries() {
  static constexpr KernelEntry entries[] = {
      {.op = "map", .name = "generated", .applies = applies, .prepare = prepare, .follows = true},
      {.op = "map_reduce",
       .name = "generated",
       .applies = applies,
       .prepare = prepare,
       .follows = true},
  };
  return entries;
}

}  // namespace tessera::cpu
