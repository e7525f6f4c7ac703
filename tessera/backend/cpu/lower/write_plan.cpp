#include "tessera/backend/cpu/lower/write_plan.h"

#include <fmt/format.h>

#include "tessera/backend/cpu/kernels/copy.h"
#include "tessera/backend/cpu/lower/arena.h"
#include "tessera/backend/cpu/lower/lifetimes.h"
#include "tessera/base/error.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

KernelOperand operand_of(const Draft& draft, const Read& read) {
  if (!read.block.valid()) return {DType::f32, {}, false};
  return {draft.block(read.block).type.dtype, from_first(read.geometry), true, read.layout};
}

KernelChoice choose_kernel_for(const Draft& draft, const DraftCall& call, KernelTuner& tuner) {
  if (!call.node.valid()) {
    const Read& from = call.inputs[0];
    return choose_copy(draft.block(from.block).type.dtype, from.geometry, draft.target);
  }
  const Node& node = draft.graph->node(call.node);
  std::vector<KernelOperand> inputs, outputs;
  for (const Read& read : call.inputs) inputs.push_back(operand_of(draft, read));
  for (const BlockId block : call.outputs) {
    outputs.push_back(operand_of(draft, read_whole(draft, block)));
  }
  return tuner.choose({op(node), node.attrs, inputs, outputs, draft.target});
}

std::string text_of(const Origin& origin) {
  std::string text = origin.module;
  if (!origin.file.empty()) {
    text += fmt::format("{}[{}:{}]", text.empty() ? "" : " ", origin.file, origin.line);
  }
  if (origin.backward && !text.empty()) text += " backward";
  return text;
}

class PlanWriter {
 public:
  PlanWriter(const Draft& draft, const std::vector<KernelChoice>& kernels)
      : draft_(draft), kernels_(kernels), buffers_(draft.blocks.size()) {}

  Plan write() {
    plan_.name = draft_.graph->name;
    plan_.graph = draft_.graph;
    plan_.target = draft_.target;
    add_fixed_buffers();
    add_arena_buffers();
    KernelTuner table_only({}, 0);
    for (const DraftCall& call : draft_.load) {
      plan_.load.push_back(call_of(call, choose_kernel_for(draft_, call, table_only), {}));
    }
    for (size_t i = 0; i < draft_.calls.size(); ++i) {
      plan_.calls.push_back(call_of(draft_.calls[i], kernels_[i], workspaces_[i]));
    }
    plan_.update_begin = draft_.update_begin;
    for (const Read& read : draft_.outputs) plan_.outputs.push_back(place_of(read));
    const ArenaSizes arena = assign_arena(plan_.buffers);
    plan_.memory.arena_bytes = arena.bytes;
    plan_.memory.without_reuse_bytes = arena.without_reuse_bytes;
    plan_.memory.lower_bound_bytes = arena.lower_bound_bytes;
    return std::move(plan_);
  }

 private:
  BufferId add_buffer(const Buffer& buffer) {
    plan_.buffers.push_back(buffer);
    return {static_cast<int32_t>(plan_.buffers.size()) - 1};
  }

  // One after the other in the memory of their space.
  BufferId add_fixed_buffer(BlockId id, int64_t& end) {
    const Block& block = draft_.block(id);
    const BufferId buffer = add_buffer({block.space, block.index, end, bytes(block.type), 0, 0});
    buffers_[static_cast<size_t>(id.index)] = buffer;
    end += aligned(bytes(block.type));
    return buffer;
  }

  void add_fixed_buffers() {
    for (const BlockId id : draft_.data_inputs) {
      int64_t own_memory = 0;
      plan_.data_inputs.push_back(add_fixed_buffer(id, own_memory));
    }
    for (const BlockId id : draft_.hyperparameters) {
      plan_.hyperparameters.push_back(add_fixed_buffer(id, plan_.memory.hyperparameter_bytes));
    }
    for (const DraftState& state : draft_.states) {
      add_fixed_buffer(state.initial, plan_.memory.state_bytes);
      plan_.states.push_back(place_of(read_in_order(draft_, state.initial)));
    }
    for (const DraftCall& call : draft_.load) {
      for (const BlockId id : call.outputs) add_fixed_buffer(id, plan_.memory.constant_bytes);
    }
  }

  void add_arena_buffers() {
    const std::vector<Lifetime> lives = lifetimes(draft_);
    for (size_t i = 0; i < draft_.blocks.size(); ++i) {
      const Block& block = draft_.blocks[i];
      const BlockId id{static_cast<int32_t>(i)};
      if (block.space != Space::arena || draft_.home(id) != id || !lives[i].used()) continue;
      buffers_[i] =
          add_buffer({Space::arena, 0, 0, bytes(block.type), lives[i].first, lives[i].last});
    }
    for (size_t i = 0; i < draft_.calls.size(); ++i) {
      const int64_t size = kernels_[i].kernel->workspace_bytes();
      const auto at = static_cast<int64_t>(i);
      workspaces_.push_back(size > 0 ? add_buffer({Space::arena, 0, 0, size, at, at}) : BufferId{});
    }
  }

  Place place_of(const Read& read) const {
    if (!read.block.valid()) return {};
    const BufferId buffer = buffers_[static_cast<size_t>(draft_.home(read.block).index)];
    TESSERA_INVARIANT(buffer.valid(), "block {} has no buffer", read.block.index);
    return {buffer, draft_.block(read.block).type.dtype, read.geometry, read.value, read.layout};
  }

  Call call_of(const DraftCall& draft_call, const KernelChoice& kernel, BufferId workspace) const {
    Call call;
    call.node = draft_call.node;
    const BlockId target = draft_call.outputs[0];
    call.op = "copy";
    if (!draft_call.node.valid() &&
        draft_.block(draft_call.inputs[0].block).layout != draft_.block(target).layout) {
      call.op = "convert";
    }
    call.kernel = kernel.name;
    if (draft_call.node.valid()) {
      const Node& node = draft_.graph->node(draft_call.node);
      call.op = node.op;
      call.origin = text_of(node.origin);
      call.attrs = node.attrs;
      call.host = op(node).kind == Kind::host;
      if (call.host) call.kernel = node.attrs.text("overload");
    }
    call.run = kernel.kernel;
    call.workspace = workspace;
    for (const Read& read : draft_call.inputs) call.inputs.push_back(place_of(read));
    for (const BlockId block : draft_call.outputs) {
      call.outputs.push_back(place_of(read_whole(draft_, block)));
    }
    if (!draft_call.node.valid()) call.outputs[0].value = call.inputs[0].value;
    return call;
  }

  const Draft& draft_;
  const std::vector<KernelChoice>& kernels_;
  Plan plan_;
  std::vector<BufferId> buffers_;     // by home block
  std::vector<BufferId> workspaces_;  // by call
};

}  // namespace

std::vector<KernelChoice> choose_kernels(const Draft& draft, KernelTuner& tuner) {
  std::vector<KernelChoice> choices;
  choices.reserve(draft.calls.size());
  for (const DraftCall& call : draft.calls) {
    const Node* node = call.node.valid() ? &draft.graph->node(call.node) : nullptr;
    const std::string origin = node ? text_of(node->origin) : "";
    const ErrorContext where(node ? source_place(node->origin) : SourcePlace{},
                             "choosing a kernel for {}{}{}", node ? node->op : "copy",
                             origin.empty() ? "" : " of ", origin);
    try {
      choices.push_back(choose_kernel_for(draft, call, tuner));
    } catch (const Error&) {
      throw;
    } catch (const InternalError&) {
      throw;
    } catch (const std::exception& error) {  // of a library that a kernel is made with
      fail(ErrorKind::user, "no kernel can be made: {}", error.what());
    }
  }
  return choices;
}

Plan write_plan(const Draft& draft, const std::vector<KernelChoice>& kernels) {
  return PlanWriter(draft, kernels).write();
}

}  // namespace tessera::cpu
