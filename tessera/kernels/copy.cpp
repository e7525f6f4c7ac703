#include "tessera/kernels/copy.h"

#include <algorithm>
#include <cstring>

#include "tessera/base/divided_up.h"
#include "tessera/base/error.h"
#include "tessera/base/scratch.h"
#include "tessera/kernels/element_words.h"

namespace tessera::kernels {
namespace {

constexpr int64_t piece_elements = 32768;  // what one thread takes at a time
constexpr int64_t tile_elements = 16384;
constexpr int64_t transpose_block = 16;

struct Dim {
  int64_t size, from, to;
};

// Dimensions in the order of the target's memory, neighbours that run on in both tensors merged.
ScratchVector<Dim> merged_dims(const TensorView& from, const TensorView& to) {
  ScratchVector<Dim> dims;
  for (size_t i = 0; i < to.sizes.size(); ++i) {
    if (to.sizes[i] != 1) dims.push_back({to.sizes[i], from.strides[i], to.strides[i]});
  }
  // By hand: std::stable_sort allocates.
  for (size_t i = 1; i < dims.size(); ++i) {
    for (size_t k = i; k > 0 && std::abs(dims[k - 1].to) < std::abs(dims[k].to); --k) {
      std::swap(dims[k - 1], dims[k]);
    }
  }
  ScratchVector<Dim> merged;
  for (const Dim& dim : dims) {
    if (!merged.empty() && merged.back().from == dim.from * dim.size &&
        merged.back().to == dim.to * dim.size) {
      merged.back() = {merged.back().size * dim.size, dim.from, dim.to};
    } else {
      merged.push_back(dim);
    }
  }
  return merged;
}

// A loop nest: two dimensions that are copied as a tile, and the ones around them.
struct Nest {
  ScratchVector<Dim> outer;
  Dim second{1, 0, 0}, inner{1, 0, 0};
};

Nest make_nest(ScratchVector<Dim> dims) {
  Nest nest;
  if (!dims.empty()) {
    nest.inner = dims.back();
    dims.pop_back();
  }
  if (!dims.empty()) {
    // Where the source runs along another dimension than the target, that one makes the tile.
    size_t best = dims.size() - 1;
    if (std::abs(nest.inner.from) > 1) {
      for (size_t i = 0; i < dims.size(); ++i) {
        if (dims[i].from != 0 && std::abs(dims[i].from) < std::abs(nest.inner.from) &&
            (dims[best].from == 0 || std::abs(dims[i].from) < std::abs(dims[best].from))) {
          best = i;
        }
      }
    }
    nest.second = dims[best];
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(best));
  }
  nest.outer = std::move(dims);
  return nest;
}

template <typename T>
void copy_line(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t count) {
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
  } else if (to_stride == 1) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * from_stride];
  } else {
    for (int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
  }
}

template <typename T>
void copy_tile(const T* from, T* to, const Dim& second, const Dim& inner) {
  const bool transposed = std::abs(second.from) < std::abs(inner.from) && second.size > 1;
  const int64_t step = transposed ? transpose_block : inner.size;
  for (int64_t begin = 0; begin < inner.size; begin += step) {
    const int64_t count = std::min(step, inner.size - begin);
    for (int64_t j = 0; j < second.size; ++j) {
      copy_line(from + j * second.from + begin * inner.from, inner.from,
                to + j * second.to + begin * inner.to, inner.to, count);
    }
  }
}

template <typename T>
void copy_elements(const TensorView& from, const TensorView& to, ThreadPool& pool) {
  const Nest nest = make_nest(merged_dims(from, to));
  const int64_t inner_step = std::min(nest.inner.size, tile_elements);
  const int64_t second_step =
      std::min(nest.second.size, std::max<int64_t>(1, tile_elements / inner_step));
  const int64_t inner_tiles = divided_up(nest.inner.size, inner_step);
  const int64_t second_tiles = divided_up(nest.second.size, second_step);
  int64_t tiles = inner_tiles * second_tiles;
  for (const Dim& dim : nest.outer) tiles *= dim.size;
  const int64_t grain = std::max<int64_t>(1, piece_elements / (inner_step * second_step));

  pool.run_ranges(tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      int64_t rest = tile;
      const int64_t i = rest % inner_tiles * inner_step;
      rest /= inner_tiles;
      const int64_t j = rest % second_tiles * second_step;
      rest /= second_tiles;
      int64_t source = i * nest.inner.from + j * nest.second.from;
      int64_t target = i * nest.inner.to + j * nest.second.to;
      for (size_t d = nest.outer.size(); d-- > 0;) {
        const int64_t k = rest % nest.outer[d].size;
        rest /= nest.outer[d].size;
        source += k * nest.outer[d].from;
        target += k * nest.outer[d].to;
      }
      Dim second = nest.second;
      Dim inner = nest.inner;
      second.size = std::min(second_step, second.size - j);
      inner.size = std::min(inner_step, inner.size - i);
      copy_tile(words_of<const T>(from) + source, words_of<T>(to) + target, second, inner);
    }
  });
}

template <typename T>
void fill_elements(T value, const TensorView& to, ThreadPool& pool) {
  pool.run_ranges(to.numel(), piece_elements, [&](int64_t begin, int64_t end) {
    std::fill(words_of<T>(to) + begin, words_of<T>(to) + end, value);
  });
}

}  // namespace

void copy(const TensorView& from, const TensorView& to, ThreadPool& pool) {
  TESSERA_INVARIANT(
      std::equal(from.sizes.begin(), from.sizes.end(), to.sizes.begin(), to.sizes.end()),
      "copy from {} to {}", to_string(from.sizes), to_string(to.sizes));
  TESSERA_INVARIANT(from.dtype == to.dtype, "copy from {} to {}", name_of(from.dtype),
                    name_of(to.dtype));
  if (to.numel() == 0) return;
  switch (size_of(to.dtype)) {
    case 1:
      return copy_elements<uint8_t>(from, to, pool);
    case 2:
      return copy_elements<uint16_t>(from, to, pool);
    case 4:
      return copy_elements<uint32_t>(from, to, pool);
    default:
      return copy_elements<uint64_t>(from, to, pool);
  }
}

void fill(double value, const TensorView& to, ThreadPool& pool) {
  switch (to.dtype) {
    case DType::f32:
      return fill_elements(static_cast<float>(value), to, pool);
    case DType::f64:
      return fill_elements(value, to, pool);
    case DType::i32:
      return fill_elements(static_cast<int32_t>(static_cast<int64_t>(value)), to, pool);
    case DType::i64:
      return fill_elements(static_cast<int64_t>(value), to, pool);
    case DType::i16:
      return fill_elements(static_cast<int16_t>(static_cast<int64_t>(value)), to, pool);
    case DType::i8:
      return fill_elements(static_cast<int8_t>(static_cast<int64_t>(value)), to, pool);
    case DType::u8:
      return fill_elements(static_cast<uint8_t>(static_cast<int64_t>(value)), to, pool);
    case DType::boolean:
      return fill_elements(static_cast<uint8_t>(value != 0), to, pool);
    case DType::f16:
      return fill_elements(to_half(static_cast<float>(value)), to, pool);
    case DType::bf16:
      break;
  }
  fail(ErrorKind::type, "a tensor of type {} cannot be filled; use float32 or float16",
       name_of(to.dtype));
}

Dense::Dense(const TensorView& tensor, ThreadPool& pool) : view_(tensor) {
  if (!tensor.present || tensor.contiguous()) return;
  strides_ = scratch_strides(tensor.sizes);
  memory_.reset(static_cast<std::byte*>(
      tessera::detail::take_scratch(static_cast<size_t>(tensor.numel()) * size_of(tensor.dtype))));
  view_.data = memory_.get();
  view_.strides = strides_;
  copy(tensor, view_, pool);
}

}  // namespace tessera::kernels
