#include "tessera/api/executor/input_check.h"

#include <ATen/EmptyTensor.h>

#include <sstream>

#include "tessera/api/spoken.h"
#include "tessera/base/error.h"

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

constexpr std::string_view compiled_for_others =
    "The model was compiled for other inputs; call destroy() or wrap the model again to compile it "
    "for these";

}  // namespace

void check_readable(const std::string& name, const at::Tensor& tensor) {
  if (tensor.layout() == at::kStrided && tensor.is_cpu() && !tensor.is_nested()) {
    check(has_memory(tensor),
          "input '{}' has lost its memory: its storage has {} bytes, which is less than its "
          "elements need; give it a storage of its own, for example by clone() before resize_()",
          name, tensor.storage().nbytes());
    return;
  }
  std::ostringstream layout;
  layout << tensor.layout();
  fail(ErrorKind::user,
       "input '{}' has the layout {} on the device {}; inputs must be dense tensors on the CPU",
       name, layout.str(), tensor.device().str());
}

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

void check_memory(const std::string& name, const at::Tensor& tensor) {
  check(has_memory(tensor),
        "the weight '{}' has lost its memory: its storage was made smaller than its elements need; "
        "give it new values, for example by .data = ...",
        name);
}

void check_as_compiled(const std::string& name, const at::Tensor& tensor, at::ScalarType type,
                       const Shape& shape) {
  check(tensor.scalar_type() == type, "Data type mismatch for {}: expected {} but got {}. {}", name,
        spoken_type(type), spoken_type(tensor.scalar_type()), compiled_for_others);
  check(tensor.sizes() == shape,
        "Shape mismatch for {}: expected torch.Size({}) but got torch.Size({}). {}", name,
        spoken_sizes(shape), spoken_sizes(tensor.sizes()), compiled_for_others);
}

}  // namespace tessera
