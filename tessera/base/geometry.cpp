#include "tessera/base/geometry.h"

#include <algorithm>

namespace tessera {
namespace {

struct Dim {
  int64_t size, stride;
};

// Drops dimensions of size 1 and merges neighbours that are one run in memory.
std::vector<Dim> coalesced(const Geometry& geometry) {
  std::vector<Dim> dims;
  for (size_t i = 0; i < geometry.shape.size(); ++i) {
    const Dim dim{geometry.shape[i], geometry.strides[i]};
    if (dim.size == 1) continue;
    if (!dims.empty() && dims.back().stride == dim.stride * dim.size) {
      dims.back() = {dims.back().size * dim.size, dim.stride};
    } else {
      dims.push_back(dim);
    }
  }
  return dims;
}

// A position in row-major numbering as an index for each dimension; nothing when it is too large.
std::optional<std::vector<int64_t>> digits(int64_t position, const std::vector<Dim>& dims) {
  std::vector<int64_t> out(dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    out[i] = position % dims[i].size;
    position /= dims[i].size;
  }
  if (position != 0) return std::nullopt;
  return out;
}

int64_t distance(const std::vector<int64_t>& index, const std::vector<Dim>& dims) {
  int64_t sum = 0;
  for (size_t i = 0; i < dims.size(); ++i) sum += index[i] * dims[i].stride;
  return sum;
}

}  // namespace

Geometry dense(const Shape& shape) { return {shape, contiguous_strides(shape), 0}; }

bool same_elements(const Geometry& a, const Geometry& b) {
  if (a.shape != b.shape) return false;
  if (numel(a.shape) == 0) return true;
  if (a.offset != b.offset) return false;
  for (size_t i = 0; i < a.shape.size(); ++i) {
    if (a.shape[i] != 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

int64_t extent(const Geometry& geometry) {
  if (numel(geometry.shape) == 0) return 0;
  int64_t last = geometry.offset;
  for (size_t i = 0; i < geometry.shape.size(); ++i) {
    last += (geometry.shape[i] - 1) * geometry.strides[i];
  }
  return last + 1;
}

std::optional<Geometry> compose(const Geometry& inner, const Geometry& outer) {
  if (numel(outer.shape) == 0) return Geometry{outer.shape, outer.strides, inner.offset};
  const std::vector<Dim> dims = coalesced(inner);
  const auto start = digits(outer.offset, dims);
  if (!start) return std::nullopt;
  Geometry out{outer.shape, {}, inner.offset + distance(*start, dims)};
  // Strides say the same as long as no index of `inner` ever carries into the next one.
  std::vector<int64_t> highest = *start;
  for (size_t k = 0; k < outer.shape.size(); ++k) {
    if (outer.shape[k] == 1) {
      out.strides.push_back(0);
      continue;
    }
    const auto step = digits(outer.strides[k], dims);
    if (!step) return std::nullopt;
    for (size_t i = 0; i < dims.size(); ++i) highest[i] += (*step)[i] * (outer.shape[k] - 1);
    out.strides.push_back(distance(*step, dims));
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    if (highest[i] >= dims[i].size) return std::nullopt;
  }
  // A size-1 dimension's stride is free; the dense one keeps geometries comparable.
  const Strides dense_strides = contiguous_strides(outer.shape);
  for (size_t k = 0; k < outer.shape.size(); ++k) {
    if (outer.shape[k] == 1) out.strides[k] = dense_strides[k];
  }
  return out;
}

std::optional<MemoryOrder> memory_order(const Geometry& geometry) {
  MemoryOrder order;
  if (numel(geometry.shape) == 0) {  // no elements, no gaps
    for (size_t i = 0; i < geometry.shape.size(); ++i)
      order.dims.push_back(static_cast<int64_t>(i));
    return order;
  }
  if (geometry.offset != 0) return std::nullopt;
  // Dimensions of size 1 lie anywhere: they go first, the rest by falling stride.
  std::vector<int64_t> long_dims;
  for (size_t i = 0; i < geometry.shape.size(); ++i) {
    (geometry.shape[i] == 1 ? order.dims : long_dims).push_back(static_cast<int64_t>(i));
  }
  const auto stride = [&](int64_t d) { return geometry.strides[static_cast<size_t>(d)]; };
  std::stable_sort(long_dims.begin(), long_dims.end(),
                   [&](int64_t a, int64_t b) { return stride(a) > stride(b); });
  int64_t expected = 1;
  for (size_t k = long_dims.size(); k-- > 0;) {
    if (stride(long_dims[k]) != expected) return std::nullopt;
    expected *= geometry.shape[static_cast<size_t>(long_dims[k])];
  }
  order.dims.insert(order.dims.end(), long_dims.begin(), long_dims.end());
  return order;
}

}  // namespace tessera
