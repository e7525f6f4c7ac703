// Matrix products by oneDNN, cut into tiles that our own threads take. Transposed operands are read
// where they lie.
#include "tessera/backend/cpu/kernels/table.h"

#ifdef TESSERA_WITH_ONEDNN

#include <algorithm>

#include "tessera/backend/cpu/kernels/onednn/onednn.h"
#include "tessera/base/divided_up.h"
#include "tessera/base/error.h"

namespace tessera::cpu {
namespace {

// Below this a tile does not pay for waking a thread; above that many, threads find enough.
constexpr int64_t multiply_adds_per_tile = 750'000;
constexpr int64_t most_tiles = 32;
// Multiples that fill oneDNN's registers.
constexpr int64_t row_multiple = 8, column_multiple = 16;

// One operand as a matrix: its memory, or the transposed one, is row after row.
struct Matrix {
  char transposed = 'N';
  int64_t leading = 1;  // distance of rows in memory
  int64_t row_stride = 0, column_stride = 0, batch_stride = 0;
};

std::optional<Matrix> matrix_of(const Geometry& geometry) {
  const size_t rank = geometry.shape.size();
  const int64_t rows = geometry.shape[rank - 2], columns = geometry.shape[rank - 1];
  Matrix matrix;
  matrix.row_stride = geometry.strides[rank - 2];
  matrix.column_stride = geometry.strides[rank - 1];
  matrix.batch_stride = rank == 3 ? geometry.strides[0] : 0;
  if (columns == 1 || matrix.column_stride == 1) {
    matrix.leading = rows == 1 ? columns : matrix.row_stride;
    if (matrix.leading >= columns) return matrix;
  }
  if (rows == 1 || matrix.row_stride == 1) {
    matrix.transposed = 'T';
    matrix.leading = columns == 1 ? rows : matrix.column_stride;
    if (matrix.leading >= rows) return matrix;
  }
  return std::nullopt;
}

bool applies(const KernelUse& use) {
  for (const KernelOperand& operand : use.inputs) {
    const size_t rank = operand.geometry.shape.size();
    if (!operand.layout.plain()) return false;
    if (operand.dtype != DType::f32 || (rank != 2 && rank != 3)) return false;
    if (numel(operand.geometry.shape) == 0 || !matrix_of(operand.geometry)) return false;
  }
  return true;
}

int64_t half(int64_t size, int64_t multiple) { return rounded_up((size + 1) / 2, multiple); }

class OnednnMatmul : public PreparedKernel {
 public:
  explicit OnednnMatmul(const KernelUse& use)
      : a_(*matrix_of(use.inputs[0].geometry)), b_(*matrix_of(use.inputs[1].geometry)) {
    const Shape& shape = use.outputs[0].geometry.shape;
    const size_t rank = shape.size();
    batch_ = rank == 3 ? shape[0] : 1;
    rows_ = shape[rank - 2];
    columns_ = shape[rank - 1];
    depth_ = use.inputs[0].geometry.shape.back();
    tile_rows_ = rows_;
    tile_columns_ = columns_;
    const int64_t wanted = std::clamp<int64_t>(
        batch_ * rows_ * columns_ * depth_ / multiply_adds_per_tile, 1, most_tiles);
    // Tiles as square as can be: what is packed of one operand serves many rows of the other.
    while (tiles() * batch_ < wanted) {
      const bool cut_columns = tile_columns_ >= tile_rows_;
      int64_t& size = cut_columns ? tile_columns_ : tile_rows_;
      const int64_t smaller = half(size, cut_columns ? column_multiple : row_multiple);
      if (smaller >= size) break;
      size = smaller;
    }
  }

  void run(const KernelCall& call, std::span<std::byte>) const override {
    const auto* a = call.inputs[0].as<const float>();
    const auto* b = call.inputs[1].as<const float>();
    auto* out = call.outputs[0].as<float>();
    call.pool.run(batch_ * tiles(), [&](int64_t piece) {
      const OneOmpThread one_thread;
      const int64_t batch = piece / tiles(), tile = piece % tiles();
      const int64_t row = tile / column_tiles() * tile_rows_;
      const int64_t column = tile % column_tiles() * tile_columns_;
      const auto status =
          dnnl_sgemm(a_.transposed, b_.transposed, std::min(tile_rows_, rows_ - row),
                     std::min(tile_columns_, columns_ - column), depth_, 1.0F,
                     a + batch * a_.batch_stride + row * a_.row_stride, a_.leading,
                     b + batch * b_.batch_stride + column * b_.column_stride, b_.leading, 0.0F,
                     out + (batch * rows_ + row) * columns_ + column, columns_);
      TESSERA_INVARIANT(status == dnnl_success, "dnnl_sgemm says {}", static_cast<int>(status));
    });
  }

 private:
  int64_t column_tiles() const { return divided_up(columns_, tile_columns_); }
  int64_t tiles() const { return divided_up(rows_, tile_rows_) * column_tiles(); }

  Matrix a_, b_;
  int64_t batch_, rows_, columns_, depth_;
  int64_t tile_rows_, tile_columns_;
};

std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  return std::make_unique<OnednnMatmul>(use);
}

}  // namespace

std::span<const KernelEntry> onednn_matmul_entries() {
  static constexpr KernelEntry entries[] = {
      {.op = "matmul",
       .name = "onednn_matmul",
       .applies = applies,
       .prepare = prepare,
       .uses_whole_machine = true},
  };
  return entries;
}

}  // namespace tessera::cpu

#else

std::span<const tessera::cpu::KernelEntry> tessera::cpu::onednn_matmul_entries() { return {}; }

#endif
