#include "tessera/torch/result_geometry.h"

#include <ATen/ATen.h>

#include "tessera/torch/convert.h"
#include "tessera/torch/fake_storage.h"

namespace tessera {
namespace {

Geometry in_memory_format(const Shape& shape, at::MemoryFormat format) {
  if (format == at::MemoryFormat::ChannelsLast && shape.size() == 4) {
    return {shape, c10::get_channels_last_strides_2d(shape), 0};
  }
  if (format == at::MemoryFormat::ChannelsLast3d && shape.size() == 5) {
    return {shape, c10::get_channels_last_strides_3d(shape), 0};
  }
  return dense(shape);
}

}  // namespace

Geometry result_geometry(Kind kind, std::span<const at::Tensor> operands, const Shape& shape) {
  if (kind == Kind::elementwise) {
    // As TensorIterator does: the first operand that has the result's shape and no gaps leads.
    for (const at::Tensor& operand : operands) {
      if (!operand.defined() || operand.sizes() != at::IntArrayRef(shape)) continue;
      Geometry geometry{shape, operand.strides().vec(), 0};
      if (memory_order(geometry)) return geometry;
    }
    return dense(shape);
  }
  for (const at::Tensor& operand : operands) {
    if (!operand.defined()) continue;
    return in_memory_format(shape, operand.suggest_memory_format());
  }
  return dense(shape);
}

Geometry copy_geometry(const at::Tensor& tensor, std::optional<at::MemoryFormat> format) {
  const at::Tensor like =
      at::empty_like(to_meta(tensor), at::TensorOptions(),
                     format ? c10::optional<at::MemoryFormat>(*format) : c10::nullopt);
  return {like.sizes().vec(), like.strides().vec(), 0};
}

}  // namespace tessera
