#include "tessera/backend/cpu/kernels/table.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "tessera/backend/cpu/kernels/x86/reduce/extremes.h"
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

// The first that applies is taken: of two families with entries for one operator, the better first.
constexpr std::span<const KernelEntry> (*families[])() = {
    // clang-format off
    narrow_conv_entries,
    batch_entries,
    winograd_entries,
    cat_entries,
    conv_entries,
    cross_entropy_entries,
    matmul_entries,
    fused_entries,
    avg_pool_entries,
    extremes_entries,
    group_norm_entries,
    layer_norm_entries,
    max_pool_entries,
    means_entries,
    moments_entries,
    nll_loss_entries,
    random_entries,
    resample_entries,
    softmax_entries,
    update_entries,
    update_of_product_entries,
    // clang-format on
};

// For results without elements.
class NothingToDo : public PreparedKernel {
 public:
  void run(const KernelCall&, std::span<std::byte>) const override {}
};

bool is_empty(const KernelOperand& operand) {
  return operand.present && numel(operand.geometry.shape) == 0;
}

// Kernels of these do the same with every element, in whatever order.
bool any_layout(const OpDef& op) { return op.kind == Kind::elementwise || op.kind == Kind::update; }

bool all_plain(const KernelUse& use) {
  const auto plain = [](const KernelOperand& operand) { return operand.layout.plain(); };
  return std::all_of(use.inputs.begin(), use.inputs.end(), plain) &&
         std::all_of(use.outputs.begin(), use.outputs.end(), plain);
}

// Those of an operator that are not turned off, in the order of preference. Tensors without
// elements are not worth a fast kernel's care.
std::vector<const KernelEntry*> entries_of(const KernelUse& use) {
  if (std::any_of(use.inputs.begin(), use.inputs.end(), is_empty) ||
      std::any_of(use.outputs.begin(), use.outputs.end(), is_empty)) {
    return {};
  }
  const std::string_view op = use.op.name;
  auto found = all_entries(op);
  for (const KernelEntry& entry : contraction_map_entries()) {
    if (entry.op != op) continue;
    // One that follows its neighbours is for where they lie in another layout than all others want.
    found.insert(entry.follows ? found.begin() : found.end(), &entry);
  }
  const auto disabled = disabled_kernels();
  std::erase_if(found, [&](const KernelEntry* entry) {
    return std::find(disabled.begin(), disabled.end(), entry->name) != disabled.end();
  });
  return found;
}

}  // namespace

KernelChoice reference_kernel(const OpDef& op) {
  TESSERA_INVARIANT(op.cpu, "operator '{}' has no kernel", op.name);
  return {"reference", std::make_shared<ReferenceKernel>(op.cpu)};
}

std::vector<const KernelEntry*> all_entries(std::string_view op) {
  std::vector<const KernelEntry*> found;
  for (const auto entries : families) {
    for (const KernelEntry& entry : entries()) {
      if (entry.op == op) found.push_back(&entry);
    }
  }
  return found;
}

Tails likely_tails(const KernelUse& use) {
  for (const KernelEntry* entry : entries_of(use)) {
    if (entry->follows) continue;
    if (entry->wants ? !entry->wants(use).empty() : entry->applies(use)) return entry->tails;
  }
  return Tails::none;
}

KernelWish kernel_wish(const KernelUse& use) {
  for (const KernelEntry* entry : entries_of(use)) {
    if (entry->follows) return {{}, true};
    if (entry->wants) {
      std::vector<Layout> layouts = entry->wants(use);
      if (!layouts.empty()) return {std::move(layouts), false};
    } else if (entry->applies(use)) {
      return {};
    }
  }
  return {};
}

bool entry_applies(const KernelEntry& entry, const KernelUse& use) {
  const bool knows_layouts = entry.wants || entry.follows || any_layout(use.op);
  return (knows_layouts || all_plain(use)) && entry.applies(use);
}

std::vector<const KernelEntry*> applying_entries(const KernelUse& use) {
  auto entries = entries_of(use);
  std::erase_if(entries, [&](const KernelEntry* entry) { return !entry_applies(*entry, use); });
  return entries;
}

KernelChoice choose_kernel(const KernelUse& use) {
  if (std::all_of(use.outputs.begin(), use.outputs.end(), is_empty) && !use.outputs.empty()) {
    return {"nothing", std::make_shared<NothingToDo>()};
  }
  for (const KernelEntry* entry : entries_of(use)) {
    if (entry_applies(*entry, use)) return {std::string(entry->name), entry->prepare(use)};
  }
  TESSERA_INVARIANT(any_layout(use.op) || all_plain(use),
                    "no kernel of '{}' reads the layouts that were chosen for it", use.op.name);
  return reference_kernel(use.op);
}

}  // namespace tessera::cpu
