// Updates whose gradient is an outer product: each element of it is made in a register, so that
// memory only sees the weights and what the optimiser remembers of them.
#include <algorithm>
#include <bit>

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/kernels/x86/update.h"
#include "tessera/base/divided_up.h"
#include "tessera/ops/optimizer_parts.h"

namespace tessera::cpu {
namespace {

using optimizer_parts::grad;

// About 5 us of work.
constexpr int64_t elements_per_piece = 32 << 10;

template <typename Update>
class OuterUpdate : public PreparedKernel {
 public:
  explicit OuterUpdate(const KernelUse& use)
      : rows_(use.outputs[0].geometry.shape[0]),
        columns_(use.outputs[0].geometry.shape[1]),
        factor_stride_(use.inputs[grad].geometry.strides[0]),
        row_stride_(columns_ == 1 ? 1 : use.inputs.back().geometry.strides[1]) {
    // A power of two: two threads, or four, have equal shares.
    const int64_t wanted = divided_up(rows_ * columns_, elements_per_piece);
    const auto pieces = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(wanted)));
    rows_per_piece_ = divided_up(rows_, pieces);
  }

  int64_t workspace_bytes() const override {
    return row_stride_ == 1 ? 0 : columns_ * int64_t{sizeof(float)};
  }

  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    const auto* factors = call.inputs[grad].as<const float>();
    const float* row = dense_row(call.inputs.back().as<const float>(), workspace);
    const Update update(call);
    call.pool.run_ranges(rows_, rows_per_piece_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        update.run_outer(i * columns_, (i + 1) * columns_, factors[i * factor_stride_], row);
    });
    update.finish(call);
  }

 private:
  const float* dense_row(const float* row, std::span<std::byte> workspace) const {
    if (row_stride_ == 1) return row;
    auto* dense = reinterpret_cast<float*>(workspace.data());
    for (int64_t j = 0; j < columns_; ++j) dense[j] = row[j * row_stride_];
    return dense;
  }

  int64_t rows_, columns_, factor_stride_, row_stride_, rows_per_piece_;
};

bool applies(const KernelUse& use) {
  if (!update_applies(use, false) || !use.inputs[0].layout.plain()) return false;
  const KernelOperand &a = use.inputs[grad], &b = use.inputs.back();
  for (const KernelOperand* factor : {&a, &b}) {
    if (factor->dtype != DType::f32 || !factor->layout.plain()) return false;
    if (factor->geometry.shape.size() != 2 || numel(factor->geometry.shape) == 0) return false;
  }
  return a.geometry.shape[1] == 1;
}

template <typename Update>
std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  return std::make_unique<OuterUpdate<Update>>(use);
}

}  // namespace

std::span<const KernelEntry> update_of_product_entries() {
  static constexpr KernelEntry entries[] = {
      {"sgd_of_product", "avx2", applies, prepare<SgdUpdate>},
      {"adam_of_product", "avx2", applies, prepare<AdamUpdate>},
      {"rmsprop_of_product", "avx2", applies, prepare<RmspropUpdate>},
  };
  return entries;
}

}  // namespace tessera::cpu
