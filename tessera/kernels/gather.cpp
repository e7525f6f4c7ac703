#include "tessera/kernels/gather.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tessera/base/divided_up.h"
#include "tessera/base/error.h"
#include "tessera/base/scratch.h"
#include "tessera/kernels/copy.h"
#include "tessera/kernels/dispatch.h"
#include "tessera/kernels/element_words.h"
#include "tessera/kernels/scalar_math.h"

namespace tessera::kernels {
namespace {

constexpr int64_t piece_elements = 16384;

// Integers of either width as they come.
class IndexReader {
 public:
  IndexReader(const TensorView& index, ThreadPool& pool) : dense_(index, pool) {
    TESSERA_INVARIANT(index.dtype == DType::i32 || index.dtype == DType::i64, "an index of type {}",
                      name_of(index.dtype));
  }
  int64_t operator[](int64_t i) const {
    return dense_.view().dtype == DType::i32 ? dense_.as<int32_t>()[i] : dense_.as<int64_t>()[i];
  }

 private:
  Dense dense_;
};

int64_t checked(int64_t index, int64_t size, bool from_the_end) {
  const bool inside = index < size && index >= (from_the_end ? -size : 0);
  check(inside, "index {} is outside the {} rows of the dimension it indexes", index, size);
  return index < 0 ? index + size : index;
}

// Offsets of all elements of a strided shape, row-major.
ScratchVector<int64_t> offsets_of(std::span<const int64_t> sizes,
                                  std::span<const int64_t> strides) {
  ScratchVector<int64_t> offsets{0};
  for (size_t d = 0; d < sizes.size(); ++d) {
    ScratchVector<int64_t> longer;
    longer.reserve(offsets.size() * static_cast<size_t>(sizes[d]));
    for (const int64_t offset : offsets) {
      for (int64_t i = 0; i < sizes[d]; ++i) longer.push_back(offset + i * strides[d]);
    }
    offsets = std::move(longer);
  }
  return offsets;
}

// A TensorView broadcast to a shape.
struct Broadcast {
  ScratchShape strides;
  TensorView view;

  Broadcast(const TensorView& tensor, std::span<const int64_t> shape)
      : strides(scratch_broadcast_strides(tensor.sizes, tensor.strides, shape)), view(tensor) {
    view.sizes = shape;
    view.strides = strides;
  }
  Broadcast(const Broadcast&) = delete;
  Broadcast& operator=(const Broadcast&) = delete;
};

bool is_run(const ScratchVector<int64_t>& offsets) {
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] != offsets[0] + static_cast<int64_t>(i)) return false;
  }
  return true;
}

// Calls work(with a value of an unsigned type as wide as the elements).
template <typename Work>
void by_width(DType dtype, const Work& work) {
  switch (size_of(dtype)) {
    case 1:
      return work(uint8_t{});
    case 2:
      return work(uint16_t{});
    case 4:
      return work(uint32_t{});
    default:
      return work(uint64_t{});
  }
}

// What combined with x gives x.
template <typename T>
T neutral_element(Combine combine) {
  using Limits = std::numeric_limits<T>;
  switch (combine) {
    case Combine::multiply:
      return T{1};
    case Combine::largest:
      return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    case Combine::smallest:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    default:
      return T{};
  }
}

// Visits every place, cut so that elements that can meet at one place stay on one thread and in
// order: work(first element in the list of values, first offset, count) for runs of `after`.
template <typename Work>
void for_each_place(const Places& places, ThreadPool& pool, const Work& work) {
  const auto before = static_cast<int64_t>(places.before.size());
  const auto indexed = static_cast<int64_t>(places.indexed.size());
  const auto after = static_cast<int64_t>(places.after.size());
  if (places.count() == 0) return;
  const int64_t step =
      std::clamp<int64_t>(piece_elements / indexed, 64, std::max<int64_t>(64, after));
  const int64_t chunks = divided_up(after, step);
  const int64_t grain = std::max<int64_t>(1, piece_elements / (indexed * std::min(step, after)));
  pool.run_ranges(before * chunks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t b = piece / chunks;
      const int64_t first = piece % chunks * step;
      const int64_t count = std::min(step, after - first);
      for (int64_t i = 0; i < indexed; ++i) {
        const int64_t offset = places.indexed[static_cast<size_t>(i)];
        if (offset < 0) continue;
        work((b * indexed + i) * after + first, places.before[static_cast<size_t>(b)] + offset,
             first, count, i);
      }
    }
  });
}

// A tensor and an index of the same rank: for each line of the index along `dim`, where that line
// starts in the tensor.
class LineWalk {
 public:
  LineWalk(std::span<const int64_t> shape, std::span<const int64_t> index_shape, int64_t dim)
      : index_shape_(index_shape), dim_(static_cast<size_t>(dim)) {
    strides_ = scratch_strides(shape);
    index_strides_ = scratch_strides(index_shape);
    const bool scalar = shape.empty();
    size = scalar ? 1 : shape[dim_];
    stride = scalar ? 1 : strides_[dim_];
    length = scalar ? 1 : index_shape[dim_];
    index_stride = scalar ? 1 : index_strides_[dim_];
    lines = length == 0 ? 0 : numel(index_shape) / length;
  }

  // Offsets of line `line` in the index and in the tensor.
  std::pair<int64_t, int64_t> start(int64_t line) const {
    int64_t in_index = 0;
    int64_t in_tensor = 0;
    for (size_t d = index_shape_.size(); d-- > 0;) {
      if (d == dim_) continue;
      const int64_t i = line % index_shape_[d];
      line /= index_shape_[d];
      in_index += i * index_strides_[d];
      in_tensor += i * strides_[d];
    }
    return {in_index, in_tensor};
  }

  int64_t size, stride, length, index_stride, lines;

 private:
  std::span<const int64_t> index_shape_;
  size_t dim_;
  ScratchShape strides_, index_strides_;
};

template <typename Visit>
void for_each_line(const LineWalk& walk, ThreadPool& pool, const Visit& visit) {
  const int64_t grain = std::max<int64_t>(1, piece_elements / std::max<int64_t>(1, walk.length));
  pool.run_ranges(walk.lines, grain, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      const auto [in_index, in_tensor] = walk.start(line);
      for (int64_t k = 0; k < walk.length; ++k) {
        visit(in_index + k * walk.index_stride, in_tensor);
      }
    }
  });
}

}  // namespace

Places slices_along(std::span<const int64_t> shape, int64_t dim, const TensorView& index,
                    ThreadPool& pool) {
  const IndexReader reader(index, pool);
  const ScratchShape strides = scratch_strides(shape);
  const auto d = static_cast<size_t>(dim);
  Places places;
  // A scalar counts as one row of one element.
  const int64_t size = shape.empty() ? 1 : shape[d];
  const int64_t stride = shape.empty() ? 1 : strides[d];
  const std::span<const int64_t> all_strides(strides);
  if (shape.empty()) {
    places.before = places.after = {0};
  } else {
    places.before = offsets_of(shape.first(d), all_strides.first(d));
    places.after = offsets_of(shape.subspan(d + 1), all_strides.subspan(d + 1));
  }
  const int64_t count = index.numel();
  places.indexed.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    places.indexed[static_cast<size_t>(i)] = checked(reader[i], size, false) * stride;
  }
  return places;
}

Places places_of_indices(std::span<const int64_t> shape, std::span<const TensorView> indices,
                         ThreadPool& pool) {
  const ScratchShape strides = scratch_strides(shape);
  ScratchShape index_shape;
  ScratchVector<size_t> used;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d].present) continue;
    index_shape = scratch_broadcast(index_shape, indices[d].sizes);
    used.push_back(d);
  }
  Places places;
  places.indexed.assign(static_cast<size_t>(numel(index_shape)), 0);
  for (const size_t d : used) {
    const Broadcast index(indices[d], index_shape);
    const IndexReader reader(index.view, pool);
    for (size_t i = 0; i < places.indexed.size(); ++i) {
      places.indexed[i] += checked(reader[static_cast<int64_t>(i)], shape[d], true) * strides[d];
    }
  }
  const bool neighbours = used.back() - used.front() + 1 == used.size();
  ScratchShape before, before_strides, after, after_strides;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (std::find(used.begin(), used.end(), d) != used.end()) continue;
    const bool leads = neighbours && d < used.front();
    (leads ? before : after).push_back(shape[d]);
    (leads ? before_strides : after_strides).push_back(strides[d]);
  }
  places.before = offsets_of(before, before_strides);
  places.after = offsets_of(after, after_strides);
  return places;
}

void take(const TensorView& x, const Places& places, const TensorView& out, ThreadPool& pool) {
  const bool run = is_run(places.after);
  by_width(out.dtype, [&]<typename T>(T) {
    const T* from = words_of<const T>(x);
    T* to = words_of<T>(out);
    for_each_place(places, pool,
                   [&](int64_t at, int64_t offset, int64_t first, int64_t count, int64_t) {
                     if (run) {
                       std::copy_n(from + offset + places.after[0] + first, count, to + at);
                       return;
                     }
                     for (int64_t i = 0; i < count; ++i) {
                       to[at + i] = from[offset + places.after[static_cast<size_t>(first + i)]];
                     }
                   });
  });
}

void put(const TensorView& values, const Places& places, const TensorView& out, ThreadPool& pool) {
  const Dense source(values, pool);
  by_width(out.dtype, [&]<typename T>(T) {
    const T* from = words_of<const T>(source.view());
    T* to = words_of<T>(out);
    for_each_place(places, pool,
                   [&](int64_t at, int64_t offset, int64_t first, int64_t count, int64_t) {
                     for (int64_t i = 0; i < count; ++i) {
                       to[offset + places.after[static_cast<size_t>(first + i)]] = from[at + i];
                     }
                   });
  });
}

void put_add(const TensorView& values, const Places& places, double alpha, const float* scales,
             const TensorView& out, ThreadPool& pool) {
  const Dense source(values, pool);
  const bool run = is_run(places.after);
  dispatch<Types::all>(out.dtype, [&]<typename T>() {
    const T* from = source.as<T>();
    T* to = out.as<T>();
    for_each_place(places, pool,
                   [&](int64_t at, int64_t offset, int64_t first, int64_t count, int64_t index) {
                     const auto factor = static_cast<T>(scales ? alpha * scales[index] : alpha);
                     const auto add = [&](T& element, T x) {
                       element = add_wrapping(element, multiply_wrapping(factor, x));
                     };
                     if (run) {
                       T* line = to + offset + places.after[0] + first;
                       for (int64_t i = 0; i < count; ++i) add(line[i], from[at + i]);
                       return;
                     }
                     for (int64_t i = 0; i < count; ++i) {
                       add(to[offset + places.after[static_cast<size_t>(first + i)]], from[at + i]);
                     }
                   });
  });
}

void gather(const TensorView& x, int64_t dim, const TensorView& index, const TensorView& out,
            ThreadPool& pool) {
  const Dense source(x, pool);
  const IndexReader reader(index, pool);
  const LineWalk walk(x.sizes, index.sizes, dim);
  by_width(out.dtype, [&]<typename T>(T) {
    T* to = words_of<T>(out);
    const T* from = words_of<const T>(source.view());
    for_each_line(walk, pool, [&](int64_t at, int64_t start) {
      const int64_t i = checked(reader[at], walk.size, false);
      to[at] = from[start + i * walk.stride];
    });
  });
}

void scatter(const Scatter& scatter, const TensorView& out, ThreadPool& pool) {
  const IndexReader reader(scatter.index, pool);
  const LineWalk walk(out.sizes, scatter.index.sizes, scatter.dim);
  const auto place = [&](int64_t at, int64_t start) {
    return start + checked(reader[at], walk.size, false) * walk.stride;
  };
  if (!scatter.source.present) {
    const int64_t one = 1;
    alignas(8) std::byte memory[8];
    const TensorView element{memory, out.dtype, {&one, 1}, {&one, 1}};
    fill(scatter.value, element, pool);
    by_width(out.dtype, [&]<typename T>(T) {
      const T value = *words_of<T>(element);
      T* to = words_of<T>(out);
      for_each_line(walk, pool, [&](int64_t at, int64_t start) { to[place(at, start)] = value; });
    });
    return;
  }
  // The source may be larger than the index: only its first part is used.
  TensorView part = scatter.source;
  part.sizes = scatter.index.sizes;
  const Dense source(part, pool);
  if (scatter.combine == Combine::replace) {
    by_width(out.dtype, [&]<typename T>(T) {
      T* to = words_of<T>(out);
      const T* from = words_of<const T>(source.view());
      for_each_line(walk, pool,
                    [&](int64_t at, int64_t start) { to[place(at, start)] = from[at]; });
    });
    return;
  }
  dispatch<Types::all>(out.dtype, [&]<typename T>() {
    T* to = out.as<T>();
    if (!scatter.include_self) {
      const T neutral = neutral_element<T>(scatter.combine);
      for_each_line(walk, pool, [&](int64_t at, int64_t start) { to[place(at, start)] = neutral; });
    }
    const auto combine_by = [&](const auto& f) {
      for_each_line(walk, pool, [&](int64_t at, int64_t start) {
        T& element = to[place(at, start)];
        element = f(element, source.as<T>()[at]);
      });
    };
    switch (scatter.combine) {
      case Combine::replace:
        break;
      case Combine::add:
      case Combine::mean:
        combine_by(add_wrapping<T>);
        break;
      case Combine::multiply:
        combine_by(multiply_wrapping<T>);
        break;
      case Combine::largest:
        combine_by(maximum<T>);
        break;
      case Combine::smallest:
        combine_by(minimum<T>);
        break;
    }
    if (scatter.combine != Combine::mean) return;
    ScratchVector<int32_t> counts(static_cast<size_t>(out.numel()), scatter.include_self ? 1 : 0);
    for_each_line(walk, pool, [&](int64_t at, int64_t start) {
      ++counts[static_cast<size_t>(place(at, start))];
    });
    for (int64_t i = 0; i < out.numel(); ++i) {
      const int32_t count = std::max(counts[static_cast<size_t>(i)], 1);
      if constexpr (std::is_same_v<T, float>) {
        to[i] /= static_cast<float>(count);
      } else if constexpr (!std::is_same_v<T, bool>) {
        to[i] = static_cast<T>(divide_flooring<int32_t>(to[i], count));
      }
    }
  });
}

}  // namespace tessera::kernels
