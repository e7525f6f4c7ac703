#include "tessera/backend/cpu/kernels/add_into.h"

#include <type_traits>
#include <vector>

#include "tessera/base/half.h"
#include "tessera/kernels/dispatch.h"

namespace tessera::cpu {
namespace {

template <typename T>
T added(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a || b;
  } else if constexpr (std::is_same_v<T, Half>) {
    return to_half(to_float(a) + to_float(b));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  } else {
    return a + b;
  }
}

template <typename T>
void add_elements(const TensorView& value, T* sum) {
  const int64_t rank = value.rank();
  const int64_t count = value.numel();
  std::vector<int64_t> index(static_cast<size_t>(rank), 0);
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum[i] = added(sum[i], value.as<const T>()[at]);
    for (int64_t d = rank - 1; d >= 0; --d) {
      const auto dim = static_cast<size_t>(d);
      at += value.strides[dim];
      if (++index[dim] < value.sizes[dim]) break;
      at -= value.strides[dim] * value.sizes[dim];
      index[dim] = 0;
    }
  }
}

}  // namespace

void add_into(const TensorView& value, std::byte* sum) {
  if (value.dtype == DType::f16) return add_elements(value, reinterpret_cast<Half*>(sum));
  dispatch<Types::all>(value.dtype,
                       [&]<typename T>() { add_elements(value, reinterpret_cast<T*>(sum)); });
}

}  // namespace tessera::cpu
