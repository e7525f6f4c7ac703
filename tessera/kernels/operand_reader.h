// Reads an operand of any strides in the row-major order of the shape it is broadcast to, a block
// at a time: in place where that block is one run in memory, through a scratch block otherwise. So
// a kernel's inner loop only ever sees dense memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/base/scratch.h"
#include "tessera/base/tensor_view.h"

namespace tessera {

class OperandReader {
 public:
  static constexpr int64_t block = 1024;  // the most elements read through scratch at once
  static constexpr size_t scratch_bytes = 1024 * 4;  // for elements of up to four bytes

  OperandReader(const TensorView& view, std::span<const int64_t> to_shape);

  // Dense: read() never needs scratch, so that blocks of any length may be asked for.
  bool dense() const { return dims_.empty() || (dims_.size() == 1 && dims_[0].stride == 1); }
  // Every element is the same one.
  bool uniform() const { return uniform_; }

  // Elements [begin, begin + count) of the row-major order, dense. Where that takes a copy, it is
  // made in `scratch`, and count must not be greater than `block`.
  const std::byte* read(int64_t begin, int64_t count, std::byte* scratch) const;
  // The same; InternalError where the elements are of another type.
  template <typename T>
  const T* read_as(int64_t begin, int64_t count, std::byte* scratch) const {
    expect_elements_of<T>(dtype_);
    return reinterpret_cast<const T*>(read(begin, count, scratch));
  }

 private:
  struct Dim {
    int64_t size, stride;
  };

  const std::byte* data_;
  DType dtype_;
  int64_t element_bytes_;
  ScratchVector<Dim> dims_;  // neighbours that are one run in memory are merged
  bool uniform_ = true;
};

}  // namespace tessera
