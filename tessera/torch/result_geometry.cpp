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

// Where all operands have the result's shape and lie in memory in the same way, so does the result.
std::optional<Geometry> shared_geometry(std::span<const at::Tensor> operands, const Shape& shape) {
  std::optional<Geometry> shared;
  bool all_dense = true;
  for (const at::Tensor& operand : operands) {
    if (!operand.defined()) continue;
    if (operand.sizes() != at::IntArrayRef(shape)) return std::nullopt;
    const Geometry geometry{shape, operand.strides().vec(), 0};
    all_dense = all_dense && operand.is_contiguous();
    if (!memory_order(geometry) || (shared && !same_elements(*shared, geometry)))
      return std::nullopt;
    if (!shared) shared = geometry;
  }
  return all_dense ? dense(shape) : shared;
}

// The order that PyTorch's iterator gives the dimensions, innermost first: by the strides of the
// first operand that tells two of them apart, which one that is broadcast there does not.
std::vector<size_t> iteration_order(std::span<const at::Tensor> operands, const Shape& shape) {
  std::vector<Strides> strides;
  for (const at::Tensor& operand : operands) {
    if (!operand.defined()) continue;
    const Shape own = operand.sizes().vec();
    strides.push_back(broadcast_strides(own, operand.strides().vec(), shape));
  }
  const auto compare = [&](size_t a, size_t b) {
    for (const Strides& operand : strides) {
      if (operand[a] == 0 || operand[b] == 0) continue;
      if (operand[a] != operand[b]) return operand[a] < operand[b] ? -1 : 1;
      if (shape[a] > shape[b]) return 1;
    }
    return 0;
  };
  std::vector<size_t> order;
  for (size_t d = shape.size(); d-- > 0;) order.push_back(d);
  // An insertion sort, since pairs that no operand tells apart make this no strict order.
  for (size_t i = 1; i < order.size(); ++i) {
    for (size_t at = i, other = i; other-- > 0;) {
      const int comparison = compare(order[other], order[at]);
      if (comparison < 0) break;
      if (comparison == 0) continue;
      std::swap(order[other], order[at]);
      at = other;
    }
  }
  return order;
}

Geometry iterator_geometry(std::span<const at::Tensor> operands, const Shape& shape) {
  if (const auto shared = shared_geometry(operands, shape)) return *shared;
  Geometry geometry = dense(shape);
  const std::vector<size_t> order = iteration_order(operands, shape);
  int64_t stride = 1;
  bool row_major = true;
  for (size_t i = 0; i < order.size(); ++i) {
    row_major = row_major && order[i] == order.size() - 1 - i;
    geometry.strides[order[i]] = stride;
    stride *= shape[order[i]];
  }
  return row_major || numel(shape) == 0 ? dense(shape) : geometry;
}

}  // namespace

Geometry result_geometry(Kind kind, std::span<const at::Tensor> operands, const Shape& shape) {
  if (kind == Kind::elementwise) return iterator_geometry(operands, shape);
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
