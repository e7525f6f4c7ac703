// Contractions with a body that goes on with their result, by the kernels of the contraction: for
// each of its entries there is one here, of the same name. A kernel that hands out its result box
// by box goes on with each box while it lies in the cache; after other kernels the body is a pass
// of its own, as it would be without fusion.
#include "tessera/backend/cpu/kernels/contraction_map.h"

#include <algorithm>
#include <array>

#include "tessera/backend/cpu/kernels/epilogue_kernel.h"
#include "tessera/backend/cpu/kernels/native.h"
#include "tessera/backend/cpu/kernels/x86/fused/program.h"
#include "tessera/base/error.h"
#include "tessera/ops/contraction_map.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

const OpDef& contraction_of(const KernelUse& use) { return *contraction_of_map(use.op); }

// The contraction alone: its result lies where the first result will.
KernelUse contraction_use(const KernelUse& use) {
  const OpDef& row = contraction_of(use);
  return {row, use.attrs, use.inputs.first(operand_count(row)), use.outputs.first(1), use.target};
}

std::vector<KernelOperand> body_operands(const KernelUse& use) {
  std::vector<KernelOperand> operands = {use.outputs[0]};
  const auto more = use.inputs.subspan(operand_count(contraction_of(use)));
  operands.insert(operands.end(), more.begin(), more.end());
  return operands;
}

enum class Cut { pieces, boxes };

std::unique_ptr<FusedProgram> program_for(const KernelUse& use, Cut cut) {
  const auto operands = body_operands(use);
  const KernelUse body_use{op("map"), use.attrs, operands, use.outputs, use.target};
  const FusedBody& body = use.attrs.body("body");
  return cut == Cut::boxes ? FusedProgram::make_for_boxes(body, body_use)
                           : FusedProgram::make(body, body_use);
}

// Whether there will be a program; makes no code.
bool body_fits(const KernelUse& use) {
  if (use.outputs[0].dtype != DType::f32) return false;
  const auto operands = body_operands(use);
  return FusedProgram::fits(use.attrs.body("body"),
                            {op("map"), use.attrs, operands, use.outputs, use.target});
}

class MappedKernel : public StatefulKernel {
 public:
  MappedKernel(std::unique_ptr<const PreparedKernel> contraction, bool takes_epilogue,
               std::unique_ptr<const FusedProgram> program, size_t own_operands)
      : contraction_(std::move(contraction)),
        stateful_(dynamic_cast<const StatefulKernel*>(contraction_.get())),
        with_epilogue_(takes_epilogue ? dynamic_cast<const EpilogueKernel*>(contraction_.get())
                                      : nullptr),
        program_(std::move(program)),
        own_operands_(own_operands) {}

  int64_t workspace_bytes() const override { return contraction_->workspace_bytes(); }

  std::unique_ptr<KernelState> make_state() const override {
    return stateful_ ? stateful_->make_state() : std::make_unique<KernelState>();
  }

  void run(KernelState& state, const KernelCall& call,
           std::span<std::byte> workspace) const override {
    std::array<TensorView, FusedProgram::most_operands> memory{call.outputs[0]};
    const auto more = call.inputs.subspan(own_operands_);
    std::copy(more.begin(), more.end(), memory.begin() + 1);
    const std::span<const TensorView> operands = std::span(memory).first(more.size() + 1);
    KernelCall contraction = call;
    contraction.inputs = call.inputs.first(own_operands_);
    contraction.outputs = call.outputs.first(1);
    if (with_epilogue_) {
      const auto go_on = [&](const Box& box) {
        program_->run(box, operands, call.outputs, call.rng);
      };
      return with_epilogue_->run_with_epilogue(state, contraction, workspace, Epilogue(go_on));
    }
    if (stateful_) {
      stateful_->run(state, contraction, workspace);
    } else {
      contraction_->run(contraction, workspace);
    }
    call.pool.run(program_->pieces(), [&](int64_t piece) {
      program_->run(piece, operands, call.outputs, call.rng, nullptr);
    });
  }

 private:
  const std::unique_ptr<const PreparedKernel> contraction_;
  const StatefulKernel* const stateful_;       // the same, where it has a state
  const EpilogueKernel* const with_epilogue_;  // the same, where it takes a epilogue
  const std::unique_ptr<const FusedProgram> program_;
  const size_t own_operands_;
};

bool applies(const KernelUse& use) {
  return entry_applies(*use.made_of, contraction_use(use)) && body_fits(use);
}

std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  const KernelEntry& entry = *use.made_of;
  std::unique_ptr<FusedProgram> program;
  if (may_go_on(entry.epilogue, use)) program = program_for(use, Cut::boxes);
  const bool takes_epilogue = program != nullptr;
  if (!program) program = program_for(use, Cut::pieces);
  TESSERA_INVARIANT(program, "a fused body that applied has no code");
  return std::make_unique<MappedKernel>(prepare_entry(entry, contraction_use(use)), takes_epilogue,
                                        std::move(program), operand_count(contraction_of(use)));
}

// What has the result's shape lies as the result does; other operands are read where they lie.
std::vector<Layout> wants(const KernelUse& use) {
  std::vector<Layout> layouts = entry_wants(*use.made_of, contraction_use(use));
  if (layouts.empty() || !body_fits(use)) return {};
  const Layout result = layouts.back();
  layouts.pop_back();
  const Geometry& shape = use.outputs[0].geometry;
  for (size_t i = layouts.size(); i < use.inputs.size(); ++i) {
    layouts.push_back(same_elements(use.inputs[i].geometry, shape) ? result : Layout{});
  }
  layouts.insert(layouts.end(), use.outputs.size(), result);
  return layouts;
}

}  // namespace

std::vector<KernelEntry> native_map_entries(const OpDef& row,
                                            std::span<const KernelEntry* const> contraction) {
  std::vector<KernelEntry> entries;
  for (const KernelEntry* made_of : contraction) {
    entries.push_back({.op = row.name,
                       .name = made_of->name,
                       .applies = applies,
                       .prepare = prepare,
                       .wants = made_of->wants ? wants : nullptr,
                       .follows = made_of->follows,
                       .epilogue = made_of->epilogue,
                       .needs = CpuLevel::avx2,
                       .uses_whole_machine = made_of->uses_whole_machine,
                       .made_of = made_of});
  }
  return entries;
}

}  // namespace tessera::cpu
