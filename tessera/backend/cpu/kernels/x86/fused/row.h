// One row of a fused body as its code sees it: where the row begins in every tensor.
#pragma once

#include <array>
#include <cstdint>

#include "tessera/backend/cpu/kernels/x86/fused/emitter.h"
#include "tessera/base/stochastic_rounding.h"

namespace tessera::cpu {

// Sums are added to: one double for the row, eight for lanes, one for each column, padded to whole
// vectors.
struct FusedRow {
  // Of a whole body or of a stage of one, which has values of the tile too.
  static constexpr size_t most_operands = FusedEmitter::most_values,
                          most_results = FusedEmitter::most_values, most_sums = 8;

  int64_t vectors = 0;  // whole ones
  int64_t tail = 0;     // elements after them, less than eight
  std::array<const std::byte*, most_operands> operands{};
  std::array<std::byte*, most_results> results{};
  std::array<double*, most_sums> sums{};
  // For steps that read the random state: the row-major number of the row's first element, and by
  // step of the whole body what its elements have in common.
  int64_t first_element = 0;
  const RoundingStream* rounding = nullptr;
};

}  // namespace tessera::cpu
