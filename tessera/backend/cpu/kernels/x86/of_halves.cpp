#include "tessera/backend/cpu/kernels/x86/of_halves.h"

#include <algorithm>
#include <array>

#include "tessera/backend/cpu/kernels/native.h"
#include "tessera/backend/cpu/kernels/stateful_kernel.h"
#include "tessera/backend/cpu/kernels/x86/halves.h"
#include "tessera/base/error.h"
#include "tessera/ops/of_halves.h"

namespace tessera::cpu {
namespace {

constexpr size_t most_operands = 4;
constexpr int64_t grain = 8192;  // of elements that one thread widens

bool is_half(const KernelOperand& operand) {
  return operand.present && operand.dtype == DType::f16;
}

// An operand that is widened, and where in the workspace to. All of the memory from its first
// element to its last is, so that strides stay what they are.
struct WidenedOperand {
  size_t operand = 0;
  int64_t elements = 0, offset = 0;
};

class AfterWidening : public StatefulKernel {
 public:
  AfterWidening(const KernelUse& use, std::unique_ptr<PreparedKernel> kernel)
      : kernel_(std::move(kernel)),
        stateful_(dynamic_cast<const StatefulKernel*>(kernel_.get())),
        own_bytes_(aligned(kernel_->workspace_bytes())),
        bytes_(own_bytes_) {
    TESSERA_INVARIANT(use.inputs.size() <= most_operands, "{} operands are too many to be widened",
                      use.inputs.size());
    for (size_t i = 0; i < use.inputs.size(); ++i) {
      if (!is_half(use.inputs[i])) continue;
      const int64_t elements = extent(use.inputs[i].geometry);
      widened_.push_back({i, elements, bytes_});
      bytes_ += aligned(elements * static_cast<int64_t>(sizeof(float)));
    }
  }

  int64_t workspace_bytes() const override { return bytes_; }

  std::unique_ptr<KernelState> make_state() const override {
    return stateful_ ? stateful_->make_state() : std::make_unique<KernelState>();
  }

  void run(KernelState& state, const KernelCall& call,
           std::span<std::byte> workspace) const override {
    std::array<TensorView, most_operands> inputs;
    std::copy(call.inputs.begin(), call.inputs.end(), inputs.begin());
    for (const WidenedOperand& one : widened_) {
      TensorView& input = inputs[one.operand];
      const Half* from = input.as<Half>();
      auto* to = reinterpret_cast<float*>(workspace.data() + one.offset);
      call.pool.run_ranges(one.elements, grain, [&](int64_t begin, int64_t end) {
        widen_halves(from + begin, to + begin, end - begin);
      });
      input.data = reinterpret_cast<std::byte*>(to);
      input.dtype = DType::f32;
    }
    KernelCall inner = call;
    inner.inputs = {inputs.data(), call.inputs.size()};
    const auto own = workspace.first(static_cast<size_t>(own_bytes_));
    if (stateful_) {
      stateful_->run(state, inner, own);
    } else {
      kernel_->run(inner, own);
    }
  }

 private:
  const std::unique_ptr<const PreparedKernel> kernel_;
  const StatefulKernel* const stateful_;  // the same, where it has a state
  const int64_t own_bytes_;
  int64_t bytes_;
  std::vector<WidenedOperand> widened_;
};

// The row that is computed, on the same operands.
KernelUse single_use(const KernelUse& use) {
  return {*row_in_single(use.op), use.attrs, use.inputs, use.outputs, use.target};
}

bool applies(const KernelUse& use) {
  const KernelUse single = single_use(use);
  return entry_applies(*use.made_of, HalvesUse(*use.made_of, single).use());
}

std::vector<Layout> wants(const KernelUse& use) {
  const KernelUse single = single_use(use);
  return entry_wants(*use.made_of, HalvesUse(*use.made_of, single).use());
}

std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  return prepare_on_halves(*use.made_of, single_use(use));
}

}  // namespace

HalvesUse::HalvesUse(const KernelEntry& entry, const KernelUse& use)
    : use_(use), inputs_(use.inputs.begin(), use.inputs.end()) {
  if (entry.reads_halves) return;
  for (KernelOperand& operand : inputs_) {
    if (!is_half(operand)) continue;
    operand.dtype = DType::f32;
    widens_ = true;
  }
}

std::unique_ptr<PreparedKernel> prepare_on_halves(const KernelEntry& entry, const KernelUse& use) {
  const HalvesUse seen(entry, use);
  auto kernel = prepare_entry(entry, seen.use());
  if (!seen.widens()) return kernel;
  return std::make_unique<AfterWidening>(use, std::move(kernel));
}

std::vector<KernelEntry> native_halves_entries(const OpDef& row,
                                               std::span<const KernelEntry* const> single) {
  std::vector<KernelEntry> entries;
  if (row.kind == Kind::update) return entries;  // they round too, and have entries of their own
  for (const KernelEntry* made_of : single) {
    entries.push_back({.op = row.name,
                       .name = made_of->name,
                       .applies = applies,
                       .prepare = prepare,
                       .wants = made_of->wants ? wants : nullptr,
                       .follows = made_of->follows,
                       .epilogue = made_of->epilogue,
                       .needs = CpuLevel::avx2,
                       .uses_whole_machine = made_of->uses_whole_machine,
                       .made_of = made_of,
                       .reads_halves = made_of->reads_halves});
  }
  return entries;
}

}  // namespace tessera::cpu
