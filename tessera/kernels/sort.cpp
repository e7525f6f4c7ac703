#include "tessera/kernels/sort.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tessera/base/scratch.h"
#include "tessera/kernels/copy.h"
#include "tessera/kernels/dispatch.h"
#include "tessera/kernels/scalar_math.h"

namespace tessera::kernels {
namespace {

template <typename T>
bool is_less(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a < b || (std::isnan(b) && !std::isnan(a));
  return a < b;
}

template <typename T>
void sort_line(const T* x, int64_t stride, int64_t size, bool descending, int64_t wanted,
               ScratchVector<int32_t>& order) {
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

// A tensor cut into lines along a dimension.
struct Lines {
  int64_t size = 1, inner = 1, count = 1;

  Lines(std::span<const int64_t> sizes, int64_t dim) {
    if (!sizes.empty()) {
      size = sizes[static_cast<size_t>(dim)];
      inner = numel(sizes.subspan(static_cast<size_t>(dim) + 1));
    }
    count = size == 0 ? 0 : numel(sizes) / size;
  }
  int64_t start(int64_t line) const { return line / inner * size * inner + line % inner; }
  int64_t grain() const { return std::max<int64_t>(1, 2048 / std::max<int64_t>(1, size)); }
};

// Elements of any type as doubles, which hold them all.
ScratchVector<double> as_doubles(const TensorView& x, ThreadPool& pool) {
  const Dense dense(x, pool);
  ScratchVector<double> out(static_cast<size_t>(x.numel()));
  dispatch<Types::all>(x.dtype, [&]<typename T>() {
    std::transform(dense.as<T>(), dense.as<T>() + x.numel(), out.begin(),
                   [](T value) { return static_cast<double>(value); });
  });
  return out;
}

}  // namespace

void sort(const TensorView& x, int64_t dim, bool descending, const TensorView& values,
          const TensorView& indices, ThreadPool& pool) {
  if (values.numel() == 0) return;
  const Dense source(x, pool);
  const Lines lines(x.sizes, dim);
  const Lines results(values.sizes, dim);
  const int64_t inner = lines.inner;
  dispatch<Types::all>(x.dtype, [&]<typename T>() {
    pool.run_ranges(lines.count, lines.grain(), [&](int64_t begin, int64_t end) {
      ScratchVector<int32_t> order;
      for (int64_t line = begin; line < end; ++line) {
        const T* from = source.as<T>() + lines.start(line);
        sort_line(from, inner, lines.size, descending, results.size, order);
        const int64_t to = results.start(line);
        for (int64_t i = 0; i < results.size; ++i) {
          const int32_t index = order[static_cast<size_t>(i)];
          values.as<T>()[to + i * inner] = from[index * inner];
          indices.as<int32_t>()[to + i * inner] = index;
        }
      }
    });
  });
}

void select_ranked(const TensorView& x, int64_t dim, RankRule rank, int64_t k,
                   const TensorView& values, const TensorView& indices, ThreadPool& pool) {
  const Dense source(x, pool);
  const Lines lines(x.sizes, dim);
  dispatch<Types::all>(x.dtype, [&]<typename T>() {
    pool.run_ranges(lines.count, lines.grain(), [&](int64_t begin, int64_t end) {
      ScratchVector<int32_t> order(static_cast<size_t>(lines.size));
      for (int64_t line = begin; line < end; ++line) {
        const T* from = source.as<T>() + lines.start(line);
        int64_t nans = 0;
        for (int64_t i = 0; i < lines.size; ++i) nans += is_nan(from[i * lines.inner]);
        std::iota(order.begin(), order.end(), 0);
        const auto at = order.begin() + rank(lines.size, nans, k);
        std::nth_element(order.begin(), at, order.end(), [&](int32_t i, int32_t j) {
          const T a = from[i * lines.inner];
          const T b = from[j * lines.inner];
          if (is_less(a, b) != is_less(b, a)) return is_less(a, b);
          return i < j;
        });
        values.as<T>()[line] = from[*at * lines.inner];
        indices.as<int32_t>()[line] = *at;
      }
    });
  });
}

void most_frequent(const TensorView& x, int64_t dim, const TensorView& values,
                   const TensorView& indices, ThreadPool& pool) {
  const Dense source(x, pool);
  const Lines lines(x.sizes, dim);
  dispatch<Types::all>(x.dtype, [&]<typename T>() {
    pool.run_ranges(lines.count, lines.grain(), [&](int64_t begin, int64_t end) {
      ScratchVector<int32_t> order;
      for (int64_t line = begin; line < end; ++line) {
        const T* from = source.as<T>() + lines.start(line);
        sort_line(from, lines.inner, lines.size, false, lines.size, order);
        int64_t most = 0;
        int64_t run = 0;
        for (size_t i = 0; i < order.size(); ++i) {
          ++run;
          const T value = from[order[i] * lines.inner];
          if (i + 1 < order.size() && from[order[i + 1] * lines.inner] == value) continue;
          if (run > most) {
            most = run;
            values.as<T>()[line] = value;
            indices.as<int32_t>()[line] = order[i];
          }
          run = 0;
        }
      }
    });
  });
}

void find_places(const Insertion& insertion, const TensorView& out, ThreadPool& pool) {
  const ScratchVector<double> sorted = as_doubles(insertion.sorted, pool);
  const ScratchVector<double> values = as_doubles(insertion.values, pool);
  const Dense order(insertion.order, pool);
  const int64_t size = insertion.sorted.sizes.back();
  const bool shared = insertion.sorted.rank() == 1;
  const int64_t per_line = shared || insertion.values.sizes.empty()
                               ? std::max<int64_t>(1, out.numel())
                               : insertion.values.sizes.back();
  pool.run_ranges(out.numel(), 2048, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = shared ? 0 : i / per_line * size;
      const double value = values[static_cast<size_t>(i)];
      int64_t low = 0;
      for (int64_t high = size; low < high;) {
        const int64_t middle = low + (high - low) / 2;
        const int64_t at = insertion.order.present ? order.as<int32_t>()[first + middle] : middle;
        check(at >= 0 && at < size, "searchsorted: the sorter names place {} of {}", at, size);
        const double there = sorted[static_cast<size_t>(first + at)];
        // Written with `not`, so that NaN comes last.
        const bool before = insertion.after_equal ? !(there > value) : !(there >= value);
        if (before) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      out.as<int32_t>()[i] = static_cast<int32_t>(low);
    }
  });
}

void find_unique(const TensorView& x, const TensorView& values, const TensorView& inverse,
                 const TensorView& counts, ThreadPool& pool) {
  const ScratchVector<double> elements = as_doubles(x, pool);
  // A NaN equals nothing: each gets a place of its own, after the numbers.
  ScratchVector<double> numbers;
  numbers.reserve(elements.size());
  int64_t nans = 0;
  for (const double element : elements) {
    if (std::isnan(element)) {
      ++nans;
    } else if (numbers.empty() || numbers.back() != element) {
      numbers.push_back(element);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  // Of the two zeros, the first.
  const auto zero = std::lower_bound(numbers.begin(), numbers.end(), 0.0);
  if (zero != numbers.end() && *zero == 0)
    *zero = *std::find(elements.begin(), elements.end(), 0.0);
  const auto found = static_cast<int64_t>(numbers.size());
  check(found + nans == values.numel(),
        "torch.unique: there are {} different values in this batch, but the program was compiled "
        "with a batch that has {}, and their number is part of it; count a known number of classes "
        "instead, with torch.bincount(x, minlength=n), or call destroy() and compile with a batch "
        "that has all of them",
        found + nans, values.numel());
  dispatch<Types::all>(values.dtype, [&]<typename T>() {
    T* out = values.as<T>();
    std::transform(numbers.begin(), numbers.end(), out, [](double x) { return static_cast<T>(x); });
    if constexpr (std::is_floating_point_v<T>) {
      std::fill(out + found, out + found + nans, std::numeric_limits<T>::quiet_NaN());
    }
  });
  std::fill_n(counts.as<int32_t>(), counts.numel(), 0);
  int64_t next_nan = found;
  for (size_t i = 0; i < elements.size(); ++i) {
    const auto at = std::lower_bound(numbers.begin(), numbers.end(), elements[i]);
    const int64_t place = std::isnan(elements[i]) ? next_nan++ : at - numbers.begin();
    inverse.as<int32_t>()[i] = static_cast<int32_t>(place);
    ++counts.as<int32_t>()[place];
  }
}

void is_member(const TensorView& x, const TensorView& set, bool invert, const TensorView& out,
               ThreadPool& pool) {
  ScratchVector<double> members = as_doubles(set, pool);
  std::erase_if(members, [](double value) { return std::isnan(value); });
  std::sort(members.begin(), members.end());
  const ScratchVector<double> values = as_doubles(x, pool);
  pool.run_ranges(out.numel(), 2048, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double value = values[static_cast<size_t>(i)];
      const bool found =
          !std::isnan(value) && std::binary_search(members.begin(), members.end(), value);
      out.as<bool>()[i] = found != invert;
    }
  });
}

}  // namespace tessera::kernels
