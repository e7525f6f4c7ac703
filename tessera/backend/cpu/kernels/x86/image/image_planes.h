// Images as planes that do not touch each other: [planes, height, width, inner], dense, where
// `inner` is 1 in the plain layout and 8 where channels or images lie in groups side by side.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/backend/cpu/kernels/table.h"

namespace tessera::cpu {

struct ImagePlanes {
  int64_t count = 0, height = 0, width = 0, inner = 1;

  int64_t row() const { return width * inner; }
  int64_t plane() const { return height * row(); }
};

// Nothing where the operand is not such a tensor, or is empty.
inline std::optional<ImagePlanes> image_planes(const KernelOperand& operand, DType dtype) {
  const Shape& shape = operand.geometry.shape;
  const bool grouped = operand.layout == channels_layout || operand.layout == batch_layout;
  if (!operand.layout.plain() && !grouped) return {};
  if (operand.dtype != dtype || shape.size() < (grouped ? 5U : 2U)) return {};
  if (numel(shape) == 0 || !same_elements(operand.geometry, dense(shape))) return {};
  const size_t rank = shape.size() - (grouped ? 1 : 0);
  ImagePlanes planes{0, shape[rank - 2], shape[rank - 1], grouped ? Layout::group : 1};
  planes.count = numel(shape) / planes.plane();
  return planes;
}

}  // namespace tessera::cpu
