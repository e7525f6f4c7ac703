#include "tessera/backend/cpu/lower/lifetimes.h"

#include <algorithm>

namespace tessera::cpu {

std::vector<Lifetime> lifetimes(const Draft& draft) {
  std::vector<Lifetime> out(draft.blocks.size());
  const auto touch = [&](BlockId block, int64_t call) {
    Lifetime& lifetime = out[static_cast<size_t>(draft.home(block).index)];
    if (!lifetime.used()) lifetime.first = call;
    lifetime.last = std::max(lifetime.last, call);
  };
  for (size_t i = 0; i < draft.calls.size(); ++i) {
    for (const Read& read : draft.calls[i].inputs) {
      if (read.block.valid()) touch(read.block, static_cast<int64_t>(i));
    }
    for (const BlockId output : draft.calls[i].outputs) touch(output, static_cast<int64_t>(i));
  }
  for (const Read& read : draft.outputs) {
    if (draft.update_begin > 0) touch(read.block, static_cast<int64_t>(draft.update_begin) - 1);
  }
  return out;
}

}  // namespace tessera::cpu
