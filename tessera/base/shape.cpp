#include "tessera/base/shape.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera {

int64_t numel(std::span<const int64_t> shape) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return n;
}

int64_t bytes(const TensorType& type) {
  return numel(type.shape) * static_cast<int64_t>(size_of(type.dtype));
}

bool fits_in_memory(const TensorType& type) {
  constexpr int64_t max_bytes = int64_t{1} << 48;
  if (type.shape.size() > max_rank) return false;
  auto total = static_cast<int64_t>(size_of(type.dtype));
  for (const int64_t size : type.shape) {
    // A size of 0 hides none of the others: strides are products too.
    if (size < 0 || __builtin_mul_overflow(total, std::max<int64_t>(size, 1), &total)) return false;
    if (total > max_bytes) return false;
  }
  return true;
}

Strides contiguous_strides(std::span<const int64_t> shape) {
  Strides strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

bool is_contiguous(std::span<const int64_t> shape, std::span<const int64_t> strides) {
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    if (strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

Shape broadcast(std::span<const int64_t> a, std::span<const int64_t> b) {
  Shape out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t back = out.size() - i;
    const int64_t x = back <= a.size() ? a[a.size() - back] : 1;
    const int64_t y = back <= b.size() ? b[b.size() - back] : 1;
    check(x == y || x == 1 || y == 1, "shapes {} and {} do not broadcast: {} and {} differ",
          to_string(a), to_string(b), x, y);
    out[i] = x == 1 ? y : x;
  }
  return out;
}

int64_t wrap_dim(int64_t dim, int64_t rank) {
  const int64_t limit = std::max<int64_t>(rank, 1);
  check(dim >= -limit && dim < limit,
        "Dimension out of range (expected to be in range of [{}, {}], but got {})", -limit,
        limit - 1, dim);
  return dim < 0 ? dim + limit : dim;
}

Strides broadcast_strides(std::span<const int64_t> shape, std::span<const int64_t> strides,
                          std::span<const int64_t> to) {
  Strides out(to.size(), 0);
  const size_t lead = to.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    out[lead + i] = shape[i] == 1 ? 0 : strides[i];
  }
  return out;
}

std::string to_string(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string to_string(const TensorType& type) {
  return fmt::format("{}[{}]", name_of(type.dtype), fmt::join(type.shape, ","));
}

}  // namespace tessera
