// Orders the elements along one dimension. NaN counts as larger than everything, equal elements
// keep their order, as PyTorch's stable sort has it.
#pragma once

#include <cstdint>

#include "tessera/base/tensor_view.h"
#include "tessera/base/thread_pool.h"

namespace tessera::kernels {

// The first elements of x in order along `dim`, as many as `values` has there, and the indices
// (i32) they had in x.
void sort(const TensorView& x, int64_t dim, bool descending, const TensorView& values,
          const TensorView& indices, ThreadPool& pool);

// One element of each line along `dim` and the index (i32) it had. `rank` says which, counted in
// order, from the number of elements and the number of NaN among them, which come last; of equal
// elements the first. The results have size 1 along `dim`.
using RankRule = int64_t (*)(int64_t size, int64_t nans, int64_t k);
void select_ranked(const TensorView& x, int64_t dim, RankRule rank, int64_t k,
                   const TensorView& values, const TensorView& indices, ThreadPool& pool);

// The most frequent element of each line, the smallest of equally frequent ones, and the last index
// it has.
void most_frequent(const TensorView& x, int64_t dim, const TensorView& values,
                   const TensorView& indices, ThreadPool& pool);

// Where each of `values` could be inserted into its sorted line without disturbing the order:
// before equal elements, or after them where `after_equal`. `sorted` is one line for all, or has a
// line for each line of `values`; `order` where present gives the sorted order of each line.
struct Insertion {
  TensorView sorted, values, order;
  bool after_equal = false;
};
void find_places(const Insertion& insertion, const TensorView& out, ThreadPool& pool);

// The different elements of x in order, of which each NaN is one; for every element of x its place
// (i32) among them, and how often each occurs (i32). Error where there are not as many as `values`
// has room for.
void find_unique(const TensorView& x, const TensorView& values, const TensorView& inverse,
                 const TensorView& counts, ThreadPool& pool);

// Whether each element of x is among those of `set`; the opposite where `invert`.
void is_member(const TensorView& x, const TensorView& set, bool invert, const TensorView& out,
               ThreadPool& pool);

}  // namespace tessera::kernels
