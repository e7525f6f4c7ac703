#include "tessera/backend/cpu/kernels/table.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/ops/split_names.h"

namespace tessera::cpu {
namespace {

class ReferenceKernel : public PreparedKernel {
 public:
  explicit ReferenceKernel(void (*run)(const KernelCall&)) : run_(run) {}
  void run(const KernelCall& call, std::span<std::byte>) const override { run_(call); }

 private:
  void (*run_)(const KernelCall&);
};

// Read anew for every choice: the variable is a tool for finding a bad kernel, also within tests.
std::vector<std::string> disabled_kernels() {
  const char* text = std::getenv("TESSERA_DISABLE_KERNELS");
  return text && *text ? split_names(text) : std::vector<std::string>{};
}

}  // namespace

KernelChoice reference_kernel(const OpDef& op) {
  TESSERA_INVARIANT(op.cpu, "operator '{}' has no kernel", op.name);
  return {"reference", std::make_shared<ReferenceKernel>(op.cpu)};
}

KernelChoice choose_kernel(const KernelUse& use) {
  const auto disabled = disabled_kernels();
  for (const auto entries : {conv_entries(), matmul_entries(), max_pool_entries(),
                             moments_entries(), resample_entries(), softmax_entries()}) {
    for (const KernelEntry& entry : entries) {
      if (entry.op != use.op.name) continue;
      if (std::find(disabled.begin(), disabled.end(), entry.name) != disabled.end()) continue;
      if (entry.applies(use)) return {std::string(entry.name), entry.prepare(use)};
    }
  }
  return reference_kernel(use.op);
}

}  // namespace tessera::cpu
