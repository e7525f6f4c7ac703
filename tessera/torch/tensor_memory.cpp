#include "tessera/torch/tensor_memory.h"

#include <ATen/EmptyTensor.h>

#include <utility>

namespace tessera {
namespace {

// The elements from the first to behind the last, in bytes of the storage.
std::pair<int64_t, int64_t> extent(const at::Tensor& tensor) {
  int64_t last = tensor.storage_offset();
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  const auto bytes = static_cast<int64_t>(tensor.element_size());
  return {tensor.storage_offset() * bytes, (last + 1) * bytes};
}

}  // namespace

bool has_memory(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return true;
  if (!tensor.has_storage() || !tensor.storage().data()) return false;
  if (tensor.is_contiguous()) {
    const int64_t elements = tensor.storage_offset() + tensor.numel();
    return tensor.storage().nbytes() >= static_cast<size_t>(elements) * tensor.element_size();
  }
  return tensor.storage().nbytes() >=
         at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size(),
                                          static_cast<size_t>(tensor.storage_offset()));
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0 || !a.has_storage() || !b.has_storage()) return false;
  if (!a.storage().data() || a.storage().data() != b.storage().data()) return false;
  const auto [a_first, a_end] = extent(a);
  const auto [b_first, b_end] = extent(b);
  return a_first < b_end && b_first < a_end;
}

bool same_window(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl() &&
         a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.dtype() == b.dtype();
}

const void* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().data() : nullptr;
}

uint32_t change_count(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor._version();
}

}  // namespace tessera
