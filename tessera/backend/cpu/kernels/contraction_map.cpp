// Contractions with a body that goes on with their result, by the kernels of the contraction: for
// each of its entries there is one here, of the same name. A kernel that hands out its result box
// by box goes on with each box while it lies in the cache; after other kernels the body is a pass
// of its own, as it would be without fusion.
#include "tessera/backend/cpu/kernels/contraction_map.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tessera/backend/cpu/kernels/tailed_kernel.h"
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
  return {row, use.attrs, use.inputs.first(operand_count(row)), use.outputs.first(1), use.precise};
}

std::vector<KernelOperand> body_operands(const KernelUse& use) {
  std::vector<KernelOperand> operands = {use.outputs[0]};
  const auto more = use.inputs.subspan(operand_count(contraction_of(use)));
  operands.insert(operands.end(), more.begin(), more.end());
  return operands;
}

constexpr int64_t small_share = 16;
// A smaller result is still in the third-level cache when a pass of its own reads it.
constexpr int64_t least_bytes_of_boxes = 8 << 20;

enum class Cut { pieces, boxes };

std::unique_ptr<FusedProgram> program_for(const KernelUse& use, Cut cut) {
  if (use.outputs[0].dtype != DType::f32) return nullptr;
  const auto operands = body_operands(use);
  const KernelUse body_use{op("map"), use.attrs, operands, use.outputs, use.precise};
  Body body = parse_body(use.attrs.text("body"));
  return cut == Cut::boxes ? FusedProgram::make_for_boxes(std::move(body), body_use)
                           : FusedProgram::make(std::move(body), body_use);
}

// Whether the body reads more than the result and numbers for parts of it.
bool reads_much(const KernelUse& use) {
  const auto more = use.inputs.subspan(operand_count(contraction_of(use)));
  const int64_t own = numel(use.outputs[0].geometry.shape);
  return std::any_of(more.begin(), more.end(), [&](const KernelOperand& operand) {
    return extent(operand.geometry) * small_share > own;
  });
}

bool may_go_on(Tails tails, const KernelUse& use) {
  return tails == Tails::any || (tails == Tails::narrow && !reads_much(use));
}

class MappedKernel : public StatefulKernel {
 public:
  MappedKernel(std::unique_ptr<const PreparedKernel> contraction, bool takes_tail,
               std::unique_ptr<const FusedProgram> program, size_t own_operands)
      : contraction_(std::move(contraction)),
        stateful_(dynamic_cast<const StatefulKernel*>(contraction_.get())),
        tailed_(takes_tail ? dynamic_cast<const TailedKernel*>(contraction_.get()) : nullptr),
        program_(std::move(program)),
        own_operands_(own_operands) {}

  int64_t workspace_bytes() const override { return contraction_->workspace_bytes(); }

  std::unique_ptr<KernelState> make_state() const override {
    return stateful_ ? stateful_->make_state() : std::make_unique<KernelState>();
  }

  void run(KernelState& state, const KernelCall& call,
           std::span<std::byte> workspace) const override {
    std::array<TensorView, FusedRow::most_operands> memory{call.outputs[0]};
    const auto more = call.inputs.subspan(own_operands_);
    std::copy(more.begin(), more.end(), memory.begin() + 1);
    const std::span<const TensorView> operands = std::span(memory).first(more.size() + 1);
    KernelCall contraction = call;
    contraction.inputs = call.inputs.first(own_operands_);
    contraction.outputs = call.outputs.first(1);
    if (tailed_) {
      const auto go_on = [&](const Box& box) { program_->run(box, operands, call.outputs); };
      return tailed_->run_with_tail(state, contraction, workspace, Tail(go_on));
    }
    if (stateful_) {
      stateful_->run(state, contraction, workspace);
    } else {
      contraction_->run(contraction, workspace);
    }
    call.pool.run(program_->pieces(),
                  [&](int64_t piece) { program_->run(piece, operands, call.outputs, nullptr); });
  }

 private:
  const std::unique_ptr<const PreparedKernel> contraction_;
  const StatefulKernel* const stateful_;  // the same, where it has a state
  const TailedKernel* const tailed_;      // the same, where it takes a tail
  const std::unique_ptr<const FusedProgram> program_;
  const size_t own_operands_;
};

// Entries are functions without a place for what they are made of: the number of the contraction's
// entry is part of their type.
template <size_t number>
const KernelEntry& entry_of(const KernelUse& use) {
  return *all_entries(contraction_of(use).name)[number];
}

template <size_t number>
bool applies(const KernelUse& use) {
  return entry_applies(entry_of<number>(use), contraction_use(use)) &&
         program_for(use, Cut::pieces);
}

template <size_t number>
std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  const KernelEntry& entry = entry_of<number>(use);
  std::unique_ptr<FusedProgram> program;
  if (may_go_on(entry.tails, use)) program = program_for(use, Cut::boxes);
  const bool takes_tail = program != nullptr;
  if (!program) program = program_for(use, Cut::pieces);
  TESSERA_INVARIANT(program, "a fused body that applied has no code");
  return std::make_unique<MappedKernel>(entry.prepare(contraction_use(use)), takes_tail,
                                        std::move(program), operand_count(contraction_of(use)));
}

// What has the result's shape lies as the result does; other operands are read where they lie.
template <size_t number>
std::vector<Layout> wants(const KernelUse& use) {
  std::vector<Layout> layouts = entry_of<number>(use).wants(contraction_use(use));
  if (layouts.empty() || !program_for(use, Cut::pieces)) return {};
  const Layout result = layouts.back();
  layouts.pop_back();
  const Geometry& shape = use.outputs[0].geometry;
  for (size_t i = layouts.size(); i < use.inputs.size(); ++i) {
    layouts.push_back(same_elements(use.inputs[i].geometry, shape) ? result : Layout{});
  }
  layouts.insert(layouts.end(), use.outputs.size(), result);
  return layouts;
}

template <size_t number>
KernelEntry entry(const OpDef& row, const KernelEntry& made_of) {
  return {.op = row.name,
          .name = made_of.name,
          .applies = applies<number>,
          .prepare = prepare<number>,
          .wants = made_of.wants ? wants<number> : nullptr,
          .follows = made_of.follows,
          .tails = made_of.tails};
}

template <size_t... numbers>
void add_entries(const OpDef& row, std::vector<KernelEntry>& to, std::index_sequence<numbers...>) {
  const auto made_of = all_entries(contraction_of_map(row)->name);
  TESSERA_INVARIANT(made_of.size() <= sizeof...(numbers), "{} has too many kernels", row.name);
  const auto add = [&]<size_t number>(std::integral_constant<size_t, number>) {
    if (number < made_of.size()) to.push_back(entry<number>(row, *made_of[number]));
  };
  (add(std::integral_constant<size_t, numbers>{}), ...);
}

}  // namespace

bool pays(Tails tails, const KernelUse& use) {
  if (tails == Tails::in_registers) return true;
  const int64_t size = bytes({DType::f32, use.outputs[0].geometry.shape});
  return may_go_on(tails, use) && size >= least_bytes_of_boxes;
}

std::span<const KernelEntry> contraction_map_entries() {
  constexpr size_t most_entries = 8;
  static const std::vector<KernelEntry> entries = [] {
    std::vector<KernelEntry> made;
    for (const OpDef* row : all_ops()) {
      if (contraction_of_map(*row))
        add_entries(*row, made, std::make_index_sequence<most_entries>{});
    }
    return made;
  }();
  return entries;
}

}  // namespace tessera::cpu
