// Reads and writes at places that an integer tensor names. An index outside its dimension is an
// Error before anything is read or written there. Where several elements go to one place they
// arrive in the order of the index: the last one stays, or sums are taken in that order.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/base/scratch.h"
#include "tessera/base/tensor_view.h"
#include "tessera/base/thread_pool.h"

namespace tessera::kernels {

// The elements of a dense tensor that an indexing reaches: for every combination of the three lists
// the element at the sum of their offsets, row-major in this order.
struct Places {
  ScratchVector<int64_t> before, indexed, after;  // an `indexed` of -1 is skipped when writing

  int64_t count() const {
    return static_cast<int64_t>(before.size() * indexed.size() * after.size());
  }
};

// Whole slices along one dimension; indices count from the front.
Places slices_along(std::span<const int64_t> shape, int64_t dim, const TensorView& index,
                    ThreadPool& pool);

// PyTorch's indexing with a list of index tensors, which broadcast against each other; dimensions
// without one are taken whole. Negative indices count from the end. Where the indexed dimensions
// are not neighbours, the index's own dimensions come first.
Places places_of_indices(std::span<const int64_t> shape, std::span<const TensorView> indices,
                         ThreadPool& pool);

// out = the elements of the dense tensor x at those places.
void take(const TensorView& x, const Places& places, const TensorView& out, ThreadPool& pool);
// Writes `values` to those places of `out`, which holds its other elements already.
void put(const TensorView& values, const Places& places, const TensorView& out, ThreadPool& pool);
// Adds `values` times alpha there; `scales` are factors for each of places.indexed, or null.
void put_add(const TensorView& values, const Places& places, double alpha, const float* scales,
             const TensorView& out, ThreadPool& pool);

// out[i][j] = x[index[i][j]][j] for dim 0, and so on for others.
void gather(const TensorView& x, int64_t dim, const TensorView& index, const TensorView& out,
            ThreadPool& pool);

// How what arrives at a place meets what is there; NaN wins the extremes.
enum class Combine { replace, add, multiply, mean, largest, smallest };

// The reverse: out[index[i][j]][j] = source[i][j], or the value, or the two combined.
struct Scatter {
  TensorView index, source;  // without a source, `value` is written
  int64_t dim = 0;
  double value = 0;
  Combine combine = Combine::replace;
  bool include_self = true;  // places that something arrives at start from what they hold
};
void scatter(const Scatter& scatter, const TensorView& out, ThreadPool& pool);

}  // namespace tessera::kernels
