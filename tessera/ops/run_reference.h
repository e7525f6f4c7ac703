// Runs an operator's reference kernel as programs do: results without elements need none.
#pragma once

#include <algorithm>

#include "tessera/ops/op_def.h"

namespace tessera {

inline void run_reference(const OpDef& op, const KernelCall& call) {
  const auto empty = [](const TensorView& result) { return result.numel() == 0; };
  if (!std::all_of(call.outputs.begin(), call.outputs.end(), empty) || call.outputs.empty()) {
    op.cpu(call);
  }
}

}  // namespace tessera
