#include "tessera/backend/cpu/lower/in_place.h"

#include <algorithm>

#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

bool row_allows(const OpDef& row, size_t result, size_t operand) {
  const auto& pairs = row.traits.in_place;
  return std::find(pairs.begin(), pairs.end(), std::pair(result, operand)) != pairs.end();
}

// The last call that reads each home; outputs are read after the last call of a micro-batch.
struct LastReads {
  std::vector<size_t> call;
  std::vector<bool> output;
};

LastReads last_reads(const Draft& draft) {
  LastReads last{std::vector<size_t>(draft.blocks.size(), 0),
                 std::vector<bool>(draft.blocks.size(), false)};
  for (size_t i = 0; i < draft.calls.size(); ++i) {
    for (const Read& read : draft.calls[i].inputs) {
      if (read.block.valid()) last.call[static_cast<size_t>(draft.home(read.block).index)] = i;
    }
  }
  for (const Read& read : draft.outputs) {
    last.output[static_cast<size_t>(draft.home(read.block).index)] = true;
  }
  return last;
}

}  // namespace

bool may_write_over(const Draft& draft, const DraftCall& call, size_t result, BlockId home) {
  const TensorType& type = draft.block(call.outputs[result]).type;
  size_t readers = 0;
  bool element_for_element = true;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Read& read = call.inputs[i];
    if (!read.block.valid() || draft.home(read.block) != home) continue;
    ++readers;
    if (!call.node.valid()) return false;  // a copy's operand may have any order
    const OpDef& row = op(draft.graph->node(call.node));
    if (!row_allows(row, result, i)) return false;
    element_for_element = element_for_element && row.kind == Kind::elementwise;
    if (draft.block(read.block).type.dtype != type.dtype) return false;
    // A reshaped operand is as good: only the order of its elements counts.
    const Read target = read_whole(draft, call.outputs[result]);
    if (read.layout != target.layout || read.geometry.shape != target.geometry.shape ||
        !same_elements(read.geometry, target.geometry) ||
        bytes(draft.block(home).type) != bytes(type)) {
      return false;
    }
  }
  return readers <= 1 || element_for_element;
}

void reuse_dying_operands(Draft& draft) {
  LastReads last = last_reads(draft);
  for (size_t i = 0; i < draft.calls.size(); ++i) {
    const DraftCall& call = draft.calls[i];
    std::vector<BlockId> taken;
    for (size_t result = 0; result < call.outputs.size(); ++result) {
      const BlockId target = call.outputs[result];
      if (draft.home(target) != target) continue;  // lives in a state's memory
      for (const Read& read : call.inputs) {
        if (!read.block.valid()) continue;
        const BlockId home = draft.home(read.block);
        const auto at = static_cast<size_t>(home.index);
        const bool dying = last.call[at] == i && !(last.output[at] && i < draft.update_begin);
        if (draft.block(home).space != Space::arena || !dying) continue;
        if (std::find(taken.begin(), taken.end(), home) != taken.end()) continue;
        if (!may_write_over(draft, call, result, home)) continue;
        taken.push_back(home);
        // From here on the memory lives as long as the result.
        const auto own = static_cast<size_t>(target.index);
        last.call[at] = std::max(last.call[at], last.call[own]);
        last.output[at] = last.output[at] || last.output[own];
        draft.block(target).home = home;
        break;
      }
    }
  }
}

}  // namespace tessera::cpu
