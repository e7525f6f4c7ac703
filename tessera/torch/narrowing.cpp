#include "tessera/torch/narrowing.h"

#include <ATen/ATen.h>

#include <limits>
#include <span>

#include "tessera/base/error.h"
#include "tessera/torch/convert.h"

namespace tessera {

TensorType graph_type_of(const at::Tensor& tensor) {
  TensorType type = type_of(tensor);
  type.dtype = narrowed(type.dtype);
  return type;
}

void check_fits(int64_t value, const std::string& what) {
  using Int32 = std::numeric_limits<int32_t>;
  check(beyond_int32(value) == 0,
        "{} holds {}, which a program cannot hold: its integers have 32 bits, from {} to {}; "
        "subtract an offset first, or compute in floating point",
        what, value, Int32::min(), Int32::max());
}

at::Tensor narrowed_values(const at::Tensor& tensor, const std::string& what) {
  const at::Tensor values = tensor.detach().contiguous().resolve_neg();
  if (values.scalar_type() == at::kLong) {
    const std::span all(values.data_ptr<int64_t>(), static_cast<size_t>(values.numel()));
    uint64_t beyond = 0;
    for (const int64_t value : all) beyond |= beyond_int32(value);
    for (size_t i = 0; beyond != 0 && i < all.size(); ++i) check_fits(all[i], what);
  }
  return values.to(scalar_type_of(narrowed(dtype_of(values.scalar_type()))));
}

}  // namespace tessera
