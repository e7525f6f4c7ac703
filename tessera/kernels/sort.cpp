#include "tessera/kernels/sort.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tessera/kernels/copy.h"
#include "tessera/kernels/dispatch.h"

namespace tessera::kernels {
namespace {

template <typename T>
bool is_less(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a < b || (std::isnan(b) && !std::isnan(a));
  return a < b;
}

template <typename T>
void sort_line(const T* x, int64_t stride, int64_t size, bool descending, int64_t wanted,
               std::vector<int32_t>& order) {
  order.resize(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  // Ties broken by index: the same as a stable sort, and only the wanted part must be sorted.
  const auto before = [&](int32_t i, int32_t j) {
    const T a = x[i * stride];
    const T b = x[j * stride];
    if (descending ? is_less(b, a) : is_less(a, b)) return true;
    if (descending ? is_less(a, b) : is_less(b, a)) return false;
    return i < j;
  };
  if (wanted < size) {
    std::partial_sort(order.begin(), order.begin() + wanted, order.end(), before);
  } else {
    std::sort(order.begin(), order.end(), before);
  }
}

}  // namespace

void sort(const TensorView& x, int64_t dim, bool descending, const TensorView& values,
          const TensorView& indices, ThreadPool& pool) {
  if (values.numel() == 0) return;
  const Dense source(x, pool);
  const auto d = static_cast<size_t>(dim);
  const bool scalar = x.sizes.empty();
  const int64_t size = scalar ? 1 : x.sizes[d];
  const int64_t wanted = scalar ? 1 : values.sizes[d];
  const int64_t inner = scalar ? 1 : numel(x.sizes.subspan(d + 1));
  const int64_t lines = x.numel() / size;
  dispatch<Types::all>(x.dtype, [&]<typename T>() {
    pool.run_ranges(lines, std::max<int64_t>(1, 2048 / size), [&](int64_t begin, int64_t end) {
      std::vector<int32_t> order;
      for (int64_t line = begin; line < end; ++line) {
        const T* from = source.as<T>() + line / inner * size * inner + line % inner;
        sort_line(from, inner, size, descending, wanted, order);
        const int64_t to = line / inner * wanted * inner + line % inner;
        for (int64_t i = 0; i < wanted; ++i) {
          const int32_t index = order[static_cast<size_t>(i)];
          values.as<T>()[to + i * inner] = from[index * inner];
          indices.as<int32_t>()[to + i * inner] = index;
        }
      }
    });
  });
}

}  // namespace tessera::kernels
