#include "tessera/backend/cpu/kernels/contraction_map.h"

#include <algorithm>

#include "tessera/ops/contraction_map.h"

namespace tessera::cpu {
namespace {

constexpr int64_t small_share = 16;
// A smaller result is still in the third-level cache when a pass of its own reads it.
constexpr int64_t least_bytes_of_boxes = 8 << 20;

// Whether the body reads more than the result and numbers for parts of it.
bool reads_much(const KernelUse& use) {
  const auto more = use.inputs.subspan(operand_count(*contraction_of_map(use.op)));
  const int64_t own = numel(use.outputs[0].geometry.shape);
  return std::any_of(more.begin(), more.end(), [&](const KernelOperand& operand) {
    return extent(operand.geometry) * small_share > own;
  });
}

}  // namespace

bool may_go_on(EpilogueKind epilogue, const KernelUse& use) {
  if (epilogue == EpilogueKind::any) return true;
  const bool narrow = epilogue == EpilogueKind::narrow || epilogue == EpilogueKind::in_rooms;
  return narrow && !reads_much(use);
}

bool pays(EpilogueKind epilogue, const KernelUse& use) {
  if (epilogue == EpilogueKind::in_registers) return true;
  if (use.outputs[0].dtype == DType::f16) {
    return epilogue == EpilogueKind::in_rooms && may_go_on(epilogue, use);
  }
  const int64_t size = bytes({DType::f32, use.outputs[0].geometry.shape});
  return may_go_on(epilogue, use) && size >= least_bytes_of_boxes;
}

}  // namespace tessera::cpu
