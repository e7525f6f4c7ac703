// The rows `matmul` and, for the bodies of linear layers, `matmul_map` by our own matrix products.
#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/kernels/x86/gemm/gemm.h"
#include "tessera/ops/fused_body.h"

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
  shape.a_halves = use.inputs[0].dtype == DType::f16;
  shape.b_halves = use.inputs[1].dtype == DType::f16;
  return shape;
}

class PackedMatmul : public PreparedKernel {
 public:
  explicit PackedMatmul(const GemmShape& shape) : gemm_(shape), bias_(shape.bias) {}

  int64_t workspace_bytes() const override { return gemm_.workspace_bytes(); }

  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    const auto* bias = bias_ ? call.inputs[2].as<const float>() : nullptr;
    gemm_.run(call.inputs[0].data, call.inputs[1].data, bias, call.outputs[0].as<float>(),
              call.pool, workspace);
  }

 private:
  Gemm gemm_;
  bool bias_;  // the operand after the matrices
};

bool is_plain_f32(const KernelOperand& operand) {
  return operand.dtype == DType::f32 && operand.layout.plain();
}

bool is_plain_f16(const KernelOperand& operand) {
  return operand.dtype == DType::f16 && operand.layout.plain();
}

// What the code of a tile does in the end.
struct TileEnd {
  bool bias = false, relu = false;
};

// A body that is one: a number for each column is added, or the positive part taken, or both.
std::optional<TileEnd> tile_end(const KernelUse& use) {
  const FusedBody& body = use.attrs.body("body");
  const BodyValue product{BodyValue::From::operand, 0}, bias{BodyValue::From::operand, 1};
  if (use.outputs.size() != 1 || use.inputs.size() > 3 || body.steps.empty()) return std::nullopt;
  TileEnd end;
  BodyValue value = product;
  for (size_t i = 0; i < body.steps.size(); ++i) {
    const BodyStep& step = body.steps[i];
    const auto& arguments = step.arguments;
    if (step.op == "add" && i == 0) {
      const bool both =
          arguments == std::vector{product, bias} || arguments == std::vector{bias, product};
      if (!both || step.attrs.number("alpha") != 1) return std::nullopt;
      end.bias = true;
    } else if (step.op == "relu" && i + 1 == body.steps.size()) {
      if (arguments[0] != value) return std::nullopt;
      end.relu = true;
    } else {
      return std::nullopt;
    }
    value = {BodyValue::From::step, i};
  }
  if (body.results[0].value != value || end.bias != (use.inputs.size() == 3)) return std::nullopt;
  if (!end.bias) return end;
  const Geometry& numbers = use.inputs[2].geometry;
  const int64_t columns = use.outputs[0].geometry.shape.back();
  if (columns == 1) return std::nullopt;  // computed as a row, which has no bias
  const bool one_row =
      !numbers.shape.empty() && numbers.shape.back() == columns && numel(numbers.shape) == columns;
  const bool dense = one_row && numbers.strides.back() == 1;
  return dense && is_plain_f32(use.inputs[2]) ? std::optional(end) : std::nullopt;
}

bool packed_matmul_applies(const KernelUse& use) {
  if (!is_plain_f32(use.outputs[0])) return false;
  for (const KernelOperand& operand : use.inputs.first(2)) {
    const size_t rank = operand.geometry.shape.size();
    if (!is_plain_f32(operand) && !is_plain_f16(operand)) return false;
    if (rank < 2 || rank > most_dimensions) return false;
    if (numel(operand.geometry.shape) == 0) return false;
  }
  if (use.inputs[0].geometry.shape.size() != use.inputs[1].geometry.shape.size()) return false;
  return Gemm::fits(shape_of(use));
}

std::unique_ptr<PreparedKernel> prepare_packed_matmul(const KernelUse& use) {
  return std::make_unique<PackedMatmul>(shape_of(use));
}

// Where the body adds a bias, takes the positive part, or both: the code of the tiles does it.
bool packed_linear_applies(const KernelUse& use) {
  return packed_matmul_applies(use) && tile_end(use);
}

std::unique_ptr<PreparedKernel> prepare_packed_linear(const KernelUse& use) {
  const TileEnd end = *tile_end(use);
  GemmShape shape = shape_of(use);
  shape.bias = end.bias;
  shape.relu = end.relu;
  return std::make_unique<PackedMatmul>(shape);
}

}  // namespace

std::span<const KernelEntry> packed_matmul_entries() {
  static constexpr KernelEntry entries[] = {
      {.op = "matmul",
       .name = "packed",
       .applies = packed_matmul_applies,
       .prepare = prepare_packed_matmul,
       .reads_halves = true},
      {.op = "matmul_map",
       .name = "packed_linear",
       .applies = packed_linear_applies,
       .prepare = prepare_packed_linear,
       .epilogue = EpilogueKind::in_registers,
       .reads_halves = true},
  };
  return entries;
}

}  // namespace tessera::cpu
