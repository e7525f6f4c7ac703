#include "tessera/backend/cpu/kernels/copy.h"

#include <cstring>

#include "tessera/kernels/copy.h"

namespace tessera::cpu {
namespace {

constexpr int64_t bytes_per_piece = 256 * 1024;

class CopyKernel : public PreparedKernel {
 public:
  void run(const KernelCall& call, std::span<std::byte>) const override {
    copy_dense(call.inputs[0], call.outputs[0].data, call.pool);
  }
};

}  // namespace

void copy_dense(const TensorView& from, std::byte* to, ThreadPool& pool) {
  if (!from.contiguous()) {
    const Strides strides = contiguous_strides(from.sizes);
    kernels::copy(from, {to, from.dtype, from.sizes, strides}, pool);
    return;
  }
  const int64_t size = from.numel() * static_cast<int64_t>(size_of(from.dtype));
  pool.run_ranges(size, bytes_per_piece, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from.data + begin, static_cast<size_t>(end - begin));
  });
}

void copy_from_dense(const std::byte* from, const TensorView& to, ThreadPool& pool) {
  const Strides strides = contiguous_strides(to.sizes);
  // Views have no constness; a copy does not write where it reads.
  kernels::copy({const_cast<std::byte*>(from), to.dtype, to.sizes, strides}, to, pool);
}

std::shared_ptr<const PreparedKernel> copy_kernel() { return std::make_shared<CopyKernel>(); }

}  // namespace tessera::cpu
