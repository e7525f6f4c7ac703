// Moves elements without looking at them: between any two geometries, or one value everywhere.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "tessera/base/scratch.h"
#include "tessera/base/tensor_view.h"
#include "tessera/base/thread_pool.h"

namespace tessera::kernels {

// Copies every element of `from` to the same index of `to`. Both have the same sizes and type; the
// strides of both are free and may be negative. `to` overlaps neither itself nor `from`.
void copy(const TensorView& from, const TensorView& to, ThreadPool& pool);

// Writes `value`, converted to its type, to every element of a dense tensor.
void fill(double value, const TensorView& to, ThreadPool& pool);

inline ScratchShape shape_of(const TensorView& x) { return {x.sizes.begin(), x.sizes.end()}; }
inline ScratchShape strides_of(const TensorView& x) { return {x.strides.begin(), x.strides.end()}; }

// A tensor in another one's memory, `offset` elements from its start.
class Window {
 public:
  Window(const TensorView& whole, ScratchShape sizes, ScratchShape strides, int64_t offset = 0)
      : sizes_(std::move(sizes)), strides_(std::move(strides)), view_(whole) {
    view_.data += offset * static_cast<int64_t>(size_of(whole.dtype));
    view_.sizes = sizes_;
    view_.strides = strides_;
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  const TensorView& view() const { return view_; }

 private:
  ScratchShape sizes_, strides_;
  TensorView view_;
};

// A tensor whose elements lie dense and row-major: the given one where it is so already, a copy of
// it otherwise. The given tensor must outlive it.
class Dense {
 public:
  Dense(const TensorView& tensor, ThreadPool& pool);

  const TensorView& view() const { return view_; }
  template <typename T>
  const T* as() const {
    return view_.as<const T>();
  }

 private:
  struct GiveBack {
    void operator()(std::byte* memory) const { tessera::detail::give_back_scratch(memory); }
  };

  ScratchShape strides_;
  std::unique_ptr<std::byte, GiveBack> memory_;
  TensorView view_;
};

}  // namespace tessera::kernels
