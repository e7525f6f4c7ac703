// What kernels for images in batch_layout ask of their operands: [N/8, C, H, W, 8], so that one
// vector holds the same element of eight images and everything is done on vectors alone.
#pragma once

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/kernels/x86/avx2.h"

namespace tessera::cpu {

using avx2::lanes;
static_assert(lanes == Layout::group);
constexpr int64_t lane_bytes = lanes * int64_t{sizeof(float)};

// Below this a piece does not pay for waking a thread.
constexpr int64_t least_piece_products = 100'000;
constexpr int64_t wanted_pieces = 8;

inline bool is_dense_in(const KernelOperand& operand, const Layout& layout) {
  return operand.layout == layout && same_elements(operand.geometry, dense(operand.geometry.shape));
}

// An image or a batch of features, not empty, whose places in memory an int can count.
inline bool is_batch8(const KernelOperand& operand, size_t logical_rank, DType dtype = DType::f32) {
  return operand.present && operand.dtype == dtype &&
         operand.geometry.shape.size() == logical_rank + 1 && is_dense_in(operand, batch_layout) &&
         numel(operand.geometry.shape) > 0 && numel(operand.geometry.shape) < int64_t{1} << 28;
}

inline bool is_plain_dense(const KernelOperand& operand) {
  return operand.dtype == DType::f32 && is_dense_in(operand, plain_layout) &&
         numel(operand.geometry.shape) > 0;
}

// Sums of the lanes of `count` vectors.
void add_up_lanes(const float* vectors, int64_t count, float* sums);

}  // namespace tessera::cpu
