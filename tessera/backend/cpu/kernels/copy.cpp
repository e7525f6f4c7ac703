#include "tessera/backend/cpu/kernels/copy.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tessera/backend/cpu/kernels/native.h"
#include "tessera/base/divided_up.h"
#include "tessera/base/scratch.h"
#include "tessera/kernels/copy.h"

namespace tessera::cpu {
namespace {

constexpr int64_t bytes_per_piece = 256 * 1024;
constexpr int64_t elements_per_piece = 16 * 1024;

class StridedCopy : public PreparedKernel {
 public:
  void run(const KernelCall& call, std::span<std::byte>) const override {
    copy_dense(call.inputs[0], call.outputs[0].data, call.pool);
  }
};

struct Dim {
  int64_t size = 1, from = 0, to = 0;  // strides in elements
};

// Without dimensions of size 1, and with those as one that run on in both tensors.
std::vector<Dim> merged(const Geometry& from) {
  const Strides to = contiguous_strides(from.shape);
  std::vector<Dim> dims;
  for (size_t i = 0; i < from.shape.size(); ++i) {
    const Dim dim{from.shape[i], from.strides[i], to[i]};
    if (dim.size == 1) continue;
    if (!dims.empty() && dims.back().from == dim.from * dim.size) {
      dims.back() = {dims.back().size * dim.size, dim.from, dim.to};
    } else {
      dims.push_back(dim);
    }
  }
  return dims;
}

// Matrices whose rows become columns: the source runs along another dimension than the target. That
// is what converting between layouts is.
template <typename Element>
class TransposingCopy : public PreparedKernel {
 public:
  using Transpose = void (*)(const Element*, int64_t, int64_t, int64_t, Element*, int64_t);

  static std::unique_ptr<TransposingCopy> make(const Geometry& from, Transpose transpose) {
    std::vector<Dim> dims = merged(from);
    const auto runs =
        std::find_if(dims.begin(), dims.end(), [](const Dim& d) { return d.from == 1; });
    if (dims.size() < 2 || runs == dims.end() || runs == dims.end() - 1) return nullptr;
    const Dim columns = *runs, rows = dims.back();
    if (rows.size < 8 || columns.size < 8) return nullptr;
    dims.pop_back();
    dims.erase(runs);
    return std::unique_ptr<TransposingCopy>(
        new TransposingCopy(rows, columns, std::move(dims), transpose));
  }

  void run(const KernelCall& call, std::span<std::byte>) const override {
    // Elements of so many bytes, whatever they mean.
    const auto* from = reinterpret_cast<const Element*>(call.inputs[0].data);
    auto* to = reinterpret_cast<Element*>(call.outputs[0].data);
    call.pool.run_ranges(count_ * cuts_, grain_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t column = i % cuts_ * step_;
        int64_t source = column, target = column * columns_.to, rest = i / cuts_;
        for (size_t d = outer_.size(); d-- > 0;) {
          const int64_t k = rest % outer_[d].size;
          rest /= outer_[d].size;
          source += k * outer_[d].from;
          target += k * outer_[d].to;
        }
        transpose_(from + source, rows_.from, rows_.size, std::min(step_, columns_.size - column),
                   to + target, columns_.to);
      }
    });
  }

 private:
  TransposingCopy(Dim rows, Dim columns, std::vector<Dim> outer, Transpose transpose)
      : rows_(rows), columns_(columns), outer_(std::move(outer)), transpose_(transpose) {
    for (const Dim& dim : outer_) count_ *= dim.size;
    step_ = std::clamp<int64_t>(elements_per_piece / rows_.size / 8 * 8, 8, columns_.size);
    cuts_ = divided_up(columns_.size, step_);
    grain_ = std::max<int64_t>(1, elements_per_piece / (rows_.size * step_));
  }

  Dim rows_, columns_;
  std::vector<Dim> outer_;
  Transpose transpose_;
  int64_t count_ = 1, step_ = 1, cuts_ = 1, grain_ = 1;
};

}  // namespace

void copy_dense(const TensorView& from, std::byte* to, ThreadPool& pool) {
  if (!from.contiguous()) {
    const ScratchShape strides = scratch_strides(from.sizes);
    kernels::copy(from, {to, from.dtype, from.sizes, strides}, pool);
    return;
  }
  const int64_t size = from.numel() * static_cast<int64_t>(size_of(from.dtype));
  pool.run_ranges(size, bytes_per_piece, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from.data + begin, static_cast<size_t>(end - begin));
  });
}

void copy_from_dense(const std::byte* from, const TensorView& to, ThreadPool& pool) {
  const ScratchShape strides = scratch_strides(to.sizes);
  // Views have no constness; a copy does not write where it reads.
  kernels::copy({const_cast<std::byte*>(from), to.dtype, to.sizes, strides}, to, pool);
}

KernelChoice choose_copy(DType dtype, const Geometry& from, const Target& target) {
  std::unique_ptr<PreparedKernel> kernel;
  const TransposeBlock transpose = native_transpose(target.level);
  if (transpose && size_of(dtype) == sizeof(float)) {
    kernel = TransposingCopy<float>::make(from, transpose);
  }
  const TransposeHalves of_halves = native_transpose_of_halves(target.level);
  if (of_halves && size_of(dtype) == sizeof(Half)) {
    kernel = TransposingCopy<Half>::make(from, of_halves);
  }
  if (kernel) return {"transposing", std::move(kernel)};
  return {"strided", std::make_shared<StridedCopy>()};
}

}  // namespace tessera::cpu
