// Products of features in batch_layout, [N/8, F, 8], with a plain matrix of any strides: a linear
// layer, and its gradient by the input. Features are channels of images of one pixel; the groups of
// eight images are the pixels of a row, so that a register tile spans some of both.
#include "tessera/backend/cpu/kernels/x86/batch8/batch8.h"
#include "tessera/backend/cpu/kernels/x86/window/sums_kernel.h"

namespace tessera::cpu {
namespace {

constexpr int64_t most_bytes = int64_t{1} << 30;  // what code can count in an int

// matmul(a, b)
bool applies(const KernelUse& use) {
  if (!is_batch8(use.inputs[0], 2) || !is_batch8(use.outputs[0], 2)) return false;
  const KernelOperand& matrix = use.inputs[1];
  return matrix.dtype == DType::f32 && matrix.layout.plain() && matrix.geometry.shape.size() == 2 &&
         extent(matrix.geometry) * int64_t{sizeof(float)} < most_bytes;
}

std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  const Shape& from = use.inputs[0].geometry.shape;
  const Geometry& matrix = use.inputs[1].geometry;
  WindowSums sums;
  sums.y = {1, 1, 1};
  sums.x = {from[0], from[0], 1};
  sums.source_channels = from[1];
  sums.result_channels = matrix.shape[1];
  sums.source_channel_stride = matrix.strides[0];
  sums.result_channel_stride = matrix.strides[1];
  sums.source_plane = sums.result_plane = lane_bytes;
  sums.source_pixel = sums.source_channels * lane_bytes;
  sums.result_pixel = sums.result_channels * lane_bytes;
  return std::make_unique<WindowSumsKernel>(sums, 1);
}

}  // namespace

std::span<const KernelEntry> batch8_matmul_entries() {
  static constexpr KernelEntry entries[] = {
      {"matmul", "batch8", applies, prepare, nullptr, true},
  };
  return entries;
}

}  // namespace tessera::cpu
