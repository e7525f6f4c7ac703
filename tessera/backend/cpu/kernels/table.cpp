#include "tessera/backend/cpu/kernels/table.h"

#include <algorithm>
#include <map>
#include <vector>

#include "tessera/backend/cpu/kernels/native.h"
#include "tessera/backend/cpu/kernels/preference.h"
#include "tessera/base/error.h"
#include "tessera/ops/contraction_map.h"
#include "tessera/ops/fused_body.h"
#include "tessera/ops/of_halves.h"
#include "tessera/ops/partials.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

class ReferenceKernel : public PreparedKernel {
 public:
  explicit ReferenceKernel(void (*run)(const KernelCall&)) : run_(run) {}
  void run(const KernelCall& call, std::span<std::byte>) const override { run_(call); }

 private:
  void (*run_)(const KernelCall&);
};

// Every entry of this machine, by operator in the order of preference.
class Entries {
 public:
  Entries() {
    add(native_entries());
    for (const auto family :
         {cat_entries, interpreted_entries, onednn_conv_entries, onednn_matmul_entries}) {
      add({family().begin(), family().end()});
    }
    for (const OpDef* row : all_ops()) {
      const OpDef *contraction = contraction_of_map(*row), *single = row_in_single(*row);
      if (contraction) add(native_map_entries(*row, of(contraction->name)));
      if (single) add(native_halves_entries(*row, of(single->name)));
    }
  }

  std::span<const KernelEntry* const> of(std::string_view op) const {
    const auto at = by_op_.find(op);
    return at == by_op_.end() ? std::span<const KernelEntry* const>{} : at->second;
  }

 private:
  void add(const std::vector<KernelEntry>& entries) {
    for (const KernelEntry& entry : entries) {
      auto& of_op = by_op_[entry.op];
      of_op.push_back(memory_.emplace_back(std::make_unique<KernelEntry>(entry)).get());
      sort_by_preference(of_op);
    }
  }

  std::vector<std::unique_ptr<KernelEntry>> memory_;
  std::map<std::string_view, std::vector<const KernelEntry*>> by_op_;
};

// For results without elements.
class NothingToDo : public PreparedKernel {
 public:
  void run(const KernelCall&, std::span<std::byte>) const override {}
};

bool is_empty(const KernelOperand& operand) {
  return operand.present && numel(operand.geometry.shape) == 0;
}

// Kernels of these do the same with every element, in whatever order; random numbers go by the
// order of elements.
bool any_layout(const KernelUse& use) {
  const Kind kind = use.op.kind;
  return (kind == Kind::elementwise && !reads_random_state(use.op, use.attrs)) ||
         kind == Kind::update || kind == Kind::collective;
}

bool all_plain(const KernelUse& use) {
  const auto plain = [](const KernelOperand& operand) { return operand.layout.plain(); };
  return std::all_of(use.inputs.begin(), use.inputs.end(), plain) &&
         std::all_of(use.outputs.begin(), use.outputs.end(), plain);
}

// Those of the operator that the target may use, in the order of preference. Tensors without
// elements are not worth a fast kernel's care; and all of them add up in floats.
std::vector<const KernelEntry*> usable_entries(const KernelUse& use) {
  if (sums_in_halves(use.attrs) || std::any_of(use.inputs.begin(), use.inputs.end(), is_empty) ||
      std::any_of(use.outputs.begin(), use.outputs.end(), is_empty)) {
    return {};
  }
  std::vector<const KernelEntry*> usable;
  for (const KernelEntry* entry : all_entries(use.op.name)) {
    if (is_usable(*entry, use.target)) usable.push_back(entry);
  }
  return usable;
}

KernelUse asked(const KernelEntry& entry, const KernelUse& use) {
  KernelUse own = use;
  own.made_of = entry.made_of;
  return own;
}

// With the layouts that it asks for itself.
bool would_apply(const KernelEntry& entry, const KernelUse& use) {
  return entry.wants ? !entry_wants(entry, use).empty() : entry_applies(entry, use);
}

}  // namespace

KernelChoice reference_kernel(const OpDef& op) {
  TESSERA_INVARIANT(op.cpu, "operator '{}' has no kernel", op.name);
  return {"reference", std::make_shared<ReferenceKernel>(op.cpu)};
}

std::span<const KernelEntry* const> all_entries(std::string_view op) {
  static const Entries entries;
  return entries.of(op);
}

bool is_usable(const KernelEntry& entry, const Target& target) {
  if (!target.has(entry.needs)) return false;
  if (entry.uses_whole_machine && target.level != machine_level()) return false;
  const auto& disabled = target.disabled_kernels;
  return std::find(disabled.begin(), disabled.end(), entry.name) == disabled.end();
}

bool entry_applies(const KernelEntry& entry, const KernelUse& use) {
  const bool knows_layouts = entry.wants || entry.follows || any_layout(use);
  return (knows_layouts || all_plain(use)) && entry.applies(asked(entry, use));
}

std::vector<Layout> entry_wants(const KernelEntry& entry, const KernelUse& use) {
  return entry.wants(asked(entry, use));
}

std::unique_ptr<PreparedKernel> prepare_entry(const KernelEntry& entry, const KernelUse& use) {
  return entry.prepare(asked(entry, use));
}

EpilogueKind likely_epilogue(const KernelUse& use) {
  for (const KernelEntry* entry : usable_entries(use)) {
    if (!entry->follows && would_apply(*entry, use)) return entry->epilogue;
  }
  return EpilogueKind::none;
}

bool likely_reads_halves(const KernelUse& use) {
  for (const KernelEntry* entry : usable_entries(use)) {
    if (would_apply(*entry, use)) return entry->reads_halves;
  }
  return false;
}

RequestedLayouts requested_layouts(const KernelUse& use) {
  for (const KernelEntry* entry : usable_entries(use)) {
    if (entry->follows) return {{}, true};
    if (entry->wants) {
      std::vector<Layout> layouts = entry_wants(*entry, use);
      if (!layouts.empty()) return {std::move(layouts), false};
    } else if (entry_applies(*entry, use)) {
      return {};
    }
  }
  return {};
}

std::vector<const KernelEntry*> applying_entries(const KernelUse& use) {
  auto entries = usable_entries(use);
  std::erase_if(entries, [&](const KernelEntry* entry) { return !entry_applies(*entry, use); });
  if (!entries.empty() && !entries.front()->last_resort) {
    std::erase_if(entries, [](const KernelEntry* entry) { return entry->last_resort; });
  }
  return entries;
}

KernelChoice choose_kernel(const KernelUse& use) {
  if (std::all_of(use.outputs.begin(), use.outputs.end(), is_empty) && !use.outputs.empty()) {
    return {"nothing", std::make_shared<NothingToDo>()};
  }
  for (const KernelEntry* entry : usable_entries(use)) {
    if (entry_applies(*entry, use)) return {std::string(entry->name), prepare_entry(*entry, use)};
  }
  TESSERA_INVARIANT(any_layout(use) || all_plain(use),
                    "no kernel of '{}' reads the layouts that were chosen for it", use.op.name);
  return reference_kernel(use.op);
}

}  // namespace tessera::cpu
