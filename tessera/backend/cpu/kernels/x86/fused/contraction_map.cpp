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
#include "tessera/backend/cpu/kernels/x86/of_halves.h"
#include "tessera/base/error.h"
#include "tessera/ops/contraction_map.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

const OpDef& contraction_of(const KernelUse& use) { return *contraction_of_map(use.op); }

bool rounds(const KernelUse& use) { return use.outputs[0].dtype == DType::f16; }

// The contraction alone: its result lies where the first result will, if that is f32 too.
class ContractionUse {
 public:
  explicit ContractionUse(const KernelUse& use)
      : single_{contraction_of(use),
                use.attrs,
                use.inputs.first(operand_count(contraction_of(use))),
                {&result_, 1},
                use.target},
        result_(use.outputs[0]),
        seen_(*use.made_of, single_) {
    result_.dtype = DType::f32;
  }
  ContractionUse(const ContractionUse&) = delete;
  ContractionUse& operator=(const ContractionUse&) = delete;

  const KernelUse& single() const { return single_; }
  KernelUse seen() const { return seen_.use(); }  // by the entry
  bool widens() const { return seen_.widens(); }

 private:
  const KernelUse single_;
  KernelOperand result_;
  const HalvesUse seen_;
};

// Whether the contraction's boxes have rooms of their own.
bool uses_rooms(const KernelUse& use) {
  return rounds(use) && use.made_of->epilogue == EpilogueKind::in_rooms;
}

std::vector<KernelOperand> body_operands(const KernelUse& use) {
  std::vector<KernelOperand> operands = {use.outputs[0]};
  operands[0].dtype = DType::f32;
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
  const DType first = use.outputs[0].dtype;
  if (first != DType::f32 && first != DType::f16) return false;
  const auto operands = body_operands(use);
  return FusedProgram::fits(use.attrs.body("body"),
                            {op("map"), use.attrs, operands, use.outputs, use.target});
}

class MappedKernel : public StatefulKernel {
 public:
  // Where the result of the contraction lies until the body has read it.
  enum class Place { result, rooms, workspace };

  MappedKernel(std::unique_ptr<const PreparedKernel> contraction, bool takes_epilogue,
               std::unique_ptr<const FusedProgram> program, size_t own_operands, Place place,
               int64_t result_elements)
      : contraction_(std::move(contraction)),
        stateful_(dynamic_cast<const StatefulKernel*>(contraction_.get())),
        with_epilogue_(takes_epilogue ? dynamic_cast<const EpilogueKernel*>(contraction_.get())
                                      : nullptr),
        program_(std::move(program)),
        own_operands_(own_operands),
        place_(place),
        own_bytes_(aligned(contraction_->workspace_bytes())),
        result_bytes_(
            place == Place::workspace ? result_elements * static_cast<int64_t>(sizeof(float)) : 0) {
  }

  int64_t workspace_bytes() const override { return own_bytes_ + result_bytes_; }

  std::unique_ptr<KernelState> make_state() const override {
    return stateful_ ? stateful_->make_state() : std::make_unique<KernelState>();
  }

  void run(KernelState& state, const KernelCall& call,
           std::span<std::byte> workspace) const override {
    TensorView result = call.outputs[0];
    result.dtype = DType::f32;
    if (place_ == Place::workspace) result.data = workspace.data() + own_bytes_;
    if (place_ == Place::rooms) result.data = nullptr;
    workspace = workspace.first(static_cast<size_t>(own_bytes_));
    std::array<TensorView, FusedProgram::most_operands> memory{result};
    const auto more = call.inputs.subspan(own_operands_);
    std::copy(more.begin(), more.end(), memory.begin() + 1);
    const std::span<const TensorView> operands = std::span(memory).first(more.size() + 1);
    KernelCall contraction = call;
    contraction.inputs = call.inputs.first(own_operands_);
    contraction.outputs = {&result, 1};
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
  const Place place_;
  const int64_t own_bytes_, result_bytes_;  // of the workspace
};

bool applies(const KernelUse& use) {
  return entry_applies(*use.made_of, ContractionUse(use).seen()) && body_fits(use);
}

std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  using Place = MappedKernel::Place;
  const KernelEntry& entry = *use.made_of;
  const ContractionUse contraction(use);
  std::unique_ptr<FusedProgram> program;
  // Operands that are widened first stand between the kernel and its boxes.
  if (may_go_on(entry.epilogue, use) && !contraction.widens()) {
    program = program_for(use, Cut::boxes);
  }
  const bool takes_epilogue = program != nullptr;
  if (!program) program = program_for(use, Cut::pieces);
  TESSERA_INVARIANT(program, "a fused body that applied has no code");
  Place place = rounds(use) ? Place::workspace : Place::result;
  KernelUse single = contraction.single();
  if (takes_epilogue && uses_rooms(use)) {
    place = Place::rooms;
    single.outputs = use.outputs.first(1);
  }
  return std::make_unique<MappedKernel>(prepare_on_halves(entry, single), takes_epilogue,
                                        std::move(program), operand_count(contraction_of(use)),
                                        place, numel(use.outputs[0].geometry.shape));
}

// What has the result's shape lies as the result does; other operands are read where they lie.
std::vector<Layout> wants(const KernelUse& use) {
  std::vector<Layout> layouts = entry_wants(*use.made_of, ContractionUse(use).seen());
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
                       .made_of = made_of,
                       .reads_halves = made_of->reads_halves});
  }
  return entries;
}

}  // namespace tessera::cpu
