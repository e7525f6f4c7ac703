#include "tessera/backend/cpu/kernels/gemm_matmul.h"

#include "tessera/backend/cpu/kernels/gemm.h"
#include "tessera/base/cpu_level.h"

namespace tessera::cpu {
namespace {

GemmShape shape_of(const KernelUse& use) {
  const Geometry& a = use.inputs[0].geometry;
  const Geometry& b = use.inputs[1].geometry;
  const size_t rank = a.shape.size();
  GemmShape shape;
  shape.rows = a.shape[rank - 2];
  shape.columns = b.shape[rank - 1];
  shape.depth = a.shape[rank - 1];
  shape.a_row = a.strides[rank - 2];
  shape.a_depth = a.strides[rank - 1];
  shape.b_depth = b.strides[rank - 2];
  shape.b_column = b.strides[rank - 1];
  for (size_t i = 0; i + 2 < rank; ++i)
    shape.batch.push_back({a.shape[i], a.strides[i], b.strides[i]});
  return shape;
}

class PackedMatmul : public PreparedKernel {
 public:
  explicit PackedMatmul(const KernelUse& use) : gemm_(shape_of(use)) {}

  int64_t workspace_bytes() const override { return gemm_.workspace_bytes(); }

  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    gemm_.run(call.inputs[0].as<const float>(), call.inputs[1].as<const float>(), nullptr,
              call.outputs[0].as<float>(), call.pool, workspace);
  }

 private:
  Gemm gemm_;
};

bool is_plain_f32(const KernelOperand& operand) {
  return operand.dtype == DType::f32 && operand.layout.plain();
}

}  // namespace

bool packed_matmul_applies(const KernelUse& use) {
  if (!has_avx2() || !is_plain_f32(use.outputs[0])) return false;
  for (const KernelOperand& operand : use.inputs) {
    const size_t rank = operand.geometry.shape.size();
    if (!is_plain_f32(operand) || rank < 2 || rank > most_dimensions) return false;
    if (numel(operand.geometry.shape) == 0) return false;
  }
  if (use.inputs[0].geometry.shape.size() != use.inputs[1].geometry.shape.size()) return false;
  return Gemm::fits(shape_of(use));
}

std::unique_ptr<PreparedKernel> prepare_packed_matmul(const KernelUse& use) {
  return std::make_unique<PackedMatmul>(use);
}

}  // namespace tessera::cpu
