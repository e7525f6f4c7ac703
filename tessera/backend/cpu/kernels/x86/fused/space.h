// The iteration space of a fused body for one use of it: physical dimensions, merged where all
// tensors allow it, the innermost as a row of vectors of eight. A tensor's part in a row is two
// numbers: how far apart vectors are and how far apart the lanes of one. So dense, repeated, "eight
// channels again and again" and strided operands are one case.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/ops/fused_body.h"

namespace tessera::cpu {

struct FusedStream {
  DType dtype = DType::f32;
  std::vector<int64_t> strides = {};           // of the outer dimensions
  int64_t vector_stride = 0, lane_stride = 0;  // within a row

  bool constant_in_row() const { return vector_stride == 0; }
  bool dense() const { return vector_stride == 8 && lane_stride == 1; }
  // From the first element of a row to one further on, which begins a vector.
  int64_t offset_in_row(int64_t element) const { return element / 8 * vector_stride; }
};

struct FusedSpace {
  // How sums meet a row: folded to one number, to one for each lane, or not at all.
  enum class Sums : uint8_t { none, row, lanes, columns };

  Shape outer;           // kept dimensions first, then the folded ones
  size_t kept = 0;       // how many of them are kept
  int64_t row = 1;       // elements; a multiple of eight where `grouped`
  bool grouped = false;  // lanes are a dimension of their own
  Sums sums = Sums::none;
  int64_t sum_elements = 1;                    // of one sum
  std::vector<FusedStream> operands, results;  // results without sums
  FusedStream sum;                             // where in a sum's elements
  // Where in the row-major order of the shape, for bodies that read the random state.
  std::optional<FusedStream> element = {};
  // Where dimensions are not merged: whether each of `outer` and what is inside of it are one run
  // in every stream.
  std::vector<bool> even = {};
};

// Whether code has vectors of elements of that type.
bool has_vectors_of(DType dtype);

// Nothing where code cannot run it: other types, layouts that differ, sums over different
// dimensions. Not merged: all physical dimensions are kept as they are, for bodies without sums.
std::optional<FusedSpace> fused_space(const FusedBody& body, const KernelUse& use,
                                      bool merged = true);

}  // namespace tessera::cpu
