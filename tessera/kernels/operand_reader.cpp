#include "tessera/kernels/operand_reader.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/scratch.h"

namespace tessera {
namespace {

template <typename Element>
void copy_run(std::byte* to, const std::byte* from, int64_t count, int64_t stride) {
  auto* out = reinterpret_cast<Element*>(to);
  const auto* in = reinterpret_cast<const Element*>(from);
  if (stride == 0) {
    std::fill_n(out, count, *in);
  } else if (stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(Element));
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = in[i * stride];
  }
}

void copy_run(std::byte* to, const std::byte* from, int64_t count, int64_t stride,
              int64_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return copy_run<uint8_t>(to, from, count, stride);
    case 2:
      return copy_run<uint16_t>(to, from, count, stride);
    default:
      return copy_run<uint32_t>(to, from, count, stride);
  }
}

}  // namespace

OperandReader::OperandReader(const TensorView& view, std::span<const int64_t> to_shape)
    : data_(view.data),
      dtype_(view.dtype),
      element_bytes_(static_cast<int64_t>(size_of(view.dtype))) {
  TESSERA_INVARIANT(element_bytes_ <= 4, "an operand of type {}", name_of(view.dtype));
  const ScratchShape strides = scratch_broadcast_strides(view.sizes, view.strides, to_shape);
  for (size_t i = 0; i < to_shape.size(); ++i) {
    const Dim dim{to_shape[i], strides[i]};
    if (dim.size == 1) continue;
    if (dim.stride != 0) uniform_ = false;
    if (!dims_.empty() && dims_.back().stride == dim.stride * dim.size) {
      dims_.back() = {dims_.back().size * dim.size, dim.stride};
    } else {
      dims_.push_back(dim);
    }
  }
}

const std::byte* OperandReader::read(int64_t begin, int64_t count, std::byte* scratch) const {
  if (dense()) return data_ + begin * element_bytes_;
  TESSERA_INVARIANT(count <= block, "a block of {} elements", count);
  const size_t rank = dims_.size();
  TESSERA_INVARIANT(rank <= max_rank, "an operand of {} dimensions", rank);
  std::array<int64_t, max_rank> index;  // only the first `rank` of them are written and read
  const std::byte* at = data_;
  for (size_t i = rank, position = static_cast<size_t>(begin); i-- > 0;) {
    const auto size = static_cast<size_t>(dims_[i].size);
    index[i] = static_cast<int64_t>(position % size);
    position /= size;
    at += index[i] * dims_[i].stride * element_bytes_;
  }
  const Dim inner = dims_[rank - 1];
  if (inner.stride == 1 && index[rank - 1] + count <= inner.size) return at;

  std::byte* to = scratch;
  for (int64_t left = count; left > 0;) {
    const int64_t run = std::min(left, inner.size - index[rank - 1]);
    copy_run(to, at, run, inner.stride, element_bytes_);
    to += run * element_bytes_;
    left -= run;
    if (left == 0) break;
    // The run ended its row: back to the row's front, one step in the dimensions around it.
    at -= index[rank - 1] * inner.stride * element_bytes_;
    index[rank - 1] = 0;
    for (size_t i = rank - 1; i-- > 0;) {
      at += dims_[i].stride * element_bytes_;
      if (++index[i] < dims_[i].size) break;
      at -= dims_[i].size * dims_[i].stride * element_bytes_;
      index[i] = 0;
    }
  }
  return scratch;
}

}  // namespace tessera
