// How the CPU runs an operator: an ordered list of entries, of which the first that applies is
// taken; after them the operator's own reference kernel, which always applies. A new fast kernel is
// one entry in the list of its family, beside the kernel, and its name in preference.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/backend/cpu/layout.h"
#include "tessera/backend/cpu/plan.h"
#include "tessera/backend/cpu/target.h"
#include "tessera/ops/op_def.h"

namespace tessera::cpu {

// One use of an operator as kernels see it before memory is assigned.
struct KernelOperand {
  DType dtype = DType::f32;
  // From the first element on. Outputs are dense; where the layout is not plain, the physical one.
  Geometry geometry;
  bool present = true;
  Layout layout = {};
};
struct KernelEntry;
struct KernelUse {
  const OpDef& op;
  const Attrs& attrs;
  std::span<const KernelOperand> inputs, outputs;
  const Target& target;
  const KernelEntry* made_of = nullptr;  // that of the entry that is asked

  bool has_input(size_t i) const { return i < inputs.size() && inputs[i].present; }
};

// Element-wise steps that a kernel does with its result while it lies in the cache: none, those
// that read nothing else of the result's size, or any. In registers they cost nothing at all. In
// rooms: narrow ones, and where they end in halves the result is never in memory as f32.
enum class EpilogueKind : uint8_t { none, narrow, in_rooms, any, in_registers };

struct KernelEntry {
  std::string_view op, name;
  // The functions of an entry are asked through entry_applies() and its like, which know what they
  // may rely on: its level is there, and nothing is empty.
  //
  // Asked with the layouts that operands and results have in the end. One that neither asks for
  // layouts nor follows its neighbours is asked only where all are plain, unless it works element
  // by element.
  bool (*applies)(const KernelUse&);
  std::unique_ptr<PreparedKernel> (*prepare)(const KernelUse&);
  // Asked before layouts are chosen, with everything plain: a layout for each operand and then each
  // result with which the entry would apply; nothing where it would not. Null: plain ones.
  std::vector<Layout> (*wants)(const KernelUse&) = nullptr;
  // Asks for nothing itself, but applies in other layouts when its neighbours have them.
  bool follows = false;
  // What pays to be done with its result. With boxes of it, its kernels are EpilogueKernels; what
  // is
  // done in registers is its own matter.
  EpilogueKind epilogue = EpilogueKind::none;
  CpuLevel needs = CpuLevel::portable;
  // Of a library that asks the machine itself and uses all that it finds: only for targets that
  // may.
  bool uses_whole_machine = false;
  // For a contraction that goes on with a body: the entry of the contraction. Null for others.
  const KernelEntry* made_of = nullptr;
  // Its kernels widen operands that are halves while they read them. Asked with such operands only
  // for rows of halves (ops/of_halves.h) and contractions that go on with a body.
  bool reads_halves = false;
  // Taken only where no other entry applies, and so never timed beside one: its bits may differ.
  bool last_resort = false;
};

// Lists of families that are written for no kind of processor; native.h has the others.
std::span<const KernelEntry> cat_entries();
std::span<const KernelEntry> interpreted_entries();
std::span<const KernelEntry> onednn_conv_entries();
std::span<const KernelEntry> onednn_matmul_entries();

struct KernelChoice {
  std::string name;
  std::shared_ptr<const PreparedKernel> kernel;
};

// What the entries of an operator say before layouts are chosen, for a use with everything plain.
struct RequestedLayouts {
  std::vector<Layout> layouts;  // of the first entry that would apply, if it asks for any
  bool follows = false;         // otherwise: there are entries that follow their neighbours
};
RequestedLayouts requested_layouts(const KernelUse& use);
// Of the entry that would be taken for such a use, if nobody else asked for anything.
EpilogueKind likely_epilogue(const KernelUse& use);

// Whether the entry that would be taken for such a use reads halves: the use is that of the row in
// f32.
bool likely_reads_halves(const KernelUse& use);

// The entries of an operator that this machine has, the one to be preferred first; whether a target
// may use them or not.
std::span<const KernelEntry* const> all_entries(std::string_view op);
// Whether the target has what the entry needs and does not turn it off.
bool is_usable(const KernelEntry& entry, const Target& target);

// Of an entry that is usable. Whether it is right for the use: what it says itself, and what
// `applies` promises it.
bool entry_applies(const KernelEntry& entry, const KernelUse& use);
std::vector<Layout> entry_wants(const KernelEntry& entry, const KernelUse& use);
std::unique_ptr<PreparedKernel> prepare_entry(const KernelEntry& entry, const KernelUse& use);

// The usable entries that apply, the one to be preferred first.
std::vector<const KernelEntry*> applying_entries(const KernelUse& use);

KernelChoice choose_kernel(const KernelUse& use);
KernelChoice reference_kernel(const OpDef& op);

}  // namespace tessera::cpu
