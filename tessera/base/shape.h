// Sizes and strides, in elements, outermost dimension first.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/dtype.h"

namespace tessera {

using Shape = std::vector<int64_t>;
using Strides = std::vector<int64_t>;

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;

  bool operator==(const TensorType&) const = default;
};

int64_t numel(std::span<const int64_t> shape);
int64_t bytes(const TensorType& type);

constexpr size_t max_rank = 64;  // PyTorch's own limit
// Whether it has at most so many dimensions, none of them negative, and fewer bytes than a process
// can address. Sizes from anywhere must be asked this before anything is computed with them.
bool fits_in_memory(const TensorType& type);
Strides contiguous_strides(std::span<const int64_t> shape);
bool is_contiguous(std::span<const int64_t> shape, std::span<const int64_t> strides);

// The shape both broadcast to, by PyTorch's rule; throws Error where there is none.
Shape broadcast(std::span<const int64_t> a, std::span<const int64_t> b);

// A dimension counted from the front; throws Error when it is outside [-rank, rank).
// A scalar counts as having one dimension, as in PyTorch.
int64_t wrap_dim(int64_t dim, int64_t rank);

// Strides that read a tensor of `shape` as if it were broadcast to `to`.
Strides broadcast_strides(std::span<const int64_t> shape, std::span<const int64_t> strides,
                          std::span<const int64_t> to);

std::string to_string(std::span<const int64_t> shape);  // "[2, 3]"
std::string to_string(const TensorType& type);          // "f32[2,3]"

}  // namespace tessera
