// Matrix products by generated code, prepared for one shape. How the matrices are cut into blocks
// and pieces, what is packed and in which order products are summed follows from the shape alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/backend/cpu/kernels/epilogue.h"
#include "tessera/backend/cpu/kernels/x86/gemm/code.h"
#include "tessera/base/divided_up.h"
#include "tessera/base/half.h"
#include "tessera/base/thread_pool.h"

namespace tessera::cpu {

// out[batch..., i, j] = the sum over k of a[batch..., i, k] * b[batch..., k, j], then + bias[j] and
// the positive part where asked for. The result is dense; all other strides are free, 0 included.
struct GemmShape {
  struct Batch {
    int64_t size, a_stride, b_stride;
  };

  int64_t rows = 1, columns = 1, depth = 1;
  int64_t a_row = 0, a_depth = 1;
  int64_t b_depth = 0, b_column = 1;
  std::vector<Batch> batch = {};  // outermost first
  bool bias = false, relu = false;
  bool a_halves = false, b_halves = false;  // of which type the elements are: f16, else f32
};

class Gemm {
 public:
  // Whether offsets within a tile fit into the code. Asks nothing about the CPU.
  static bool fits(const GemmShape& shape);

  explicit Gemm(const GemmShape& shape);

  int64_t workspace_bytes() const { return floats_ * static_cast<int64_t>(sizeof(float)); }

  // `epilogue` gets boxes of the result's own dimensions [batch..., row, column], a few KB each.
  void run(const void* a, const void* b, const float* bias, float* out, ThreadPool& pool,
           std::span<std::byte> workspace, const Epilogue& epilogue = {}) const;

 private:
  // Where elements lie that are read, or only packed, which widens halves.
  struct Elements {
    const void* data = nullptr;
    bool halves = false;

    Elements from(int64_t element) const {
      if (halves) return {static_cast<const Half*>(data) + element, true};
      return {static_cast<const float*>(data) + element, false};
    }
    const float* floats() const { return static_cast<const float*>(data); }
    // work(const float*) or work(const Half*)
    template <typename Work>
    void visit(const Work& work) const {
      if (halves) {
        work(static_cast<const Half*>(data));
      } else {
        work(static_cast<const float*>(data));
      }
    }
  };
  // One call's pointers.
  struct Memory {
    Elements a, b;
    const float* bias;
    float *out, *workspace;
    const Epilogue& epilogue;
  };
  struct Span {
    int64_t begin, end;
    int64_t count() const { return end - begin; }
  };
  // Tiles below each other: some of one height, then some one row lower.
  struct Heights {
    int64_t tall, tall_count, low_count;
  };
  // One matrix of the batch, and the part of its result that a piece makes.
  struct Part {
    Elements a, b;
    const float* bias;
    float* out;
    float *shared, *room;  // workspace of all pieces, and of this one
    Span rows, columns;
    int64_t batch;
  };
  // A block of the depth: the only one, or one of several.
  enum DepthKind { only, first, middle, last, depth_kinds };

  void choose_way();
  void cut_into_pieces();
  void generate();

  int64_t pieces() const { return batch_pieces_ * row_pieces_ * column_pieces_; }
  int64_t packed_b_floats() const;
  Heights heights(int64_t rows) const;
  int64_t depth_blocks() const { return divided_up(depth_, depth_block_); }
  Span depth_range(int64_t block) const;
  DepthKind depth_kind(int64_t block) const;
  int64_t epilogue_columns(int64_t rows) const;

  Elements widened(const Elements& elements, int64_t count, float* to, ThreadPool& pool) const;
  void pack_shared(const Memory& memory, ThreadPool& pool) const;
  void pack_a(const Elements& a, Span rows, Span depth, float* to) const;
  float* shared_a(float* workspace, Span rows, int64_t depth_block) const;
  void pack_b(const Elements& b, Span columns, float* to, int64_t all_columns) const;
  void run_piece(const Memory& memory, int64_t piece) const;
  void run_panels(const Part& part, const Epilogue& epilogue) const;
  void run_dots(const Part& part, const Epilogue& epilogue) const;
  void call_epilogue(const Epilogue& epilogue, int64_t batch, Span rows, Span columns) const;

  GemmShape shape_;  // as we compute it: a column is made a row, batches perhaps rows
  bool turned_ = false;
  std::vector<int64_t> batch_sizes_;  // of the caller
  int64_t batch_ = 1, depth_ = 1;
  bool dots_ = false, pack_a_ = false, pack_b_ = false;
  bool share_a_ = false, share_b_ = false;  // packed once for all pieces
  int64_t tile_rows_ = 6, tile_columns_ = 16;
  int64_t depth_block_ = 1, row_block_ = 1;
  int64_t batch_pieces_ = 1, row_pieces_ = 1, column_pieces_ = 1;
  int64_t batch_step_ = 1, row_step_ = 1, column_step_ = 1;
  int64_t shared_b_floats_ = 0, shared_floats_ = 0;
  int64_t room_floats_ = 0, room_b_floats_ = 0, floats_ = 0;
  // Of halves that are read where they lie, not packed: they are widened first, strides and all.
  int64_t wide_a_floats_ = 0, wide_b_floats_ = 0;

  std::shared_ptr<GemmCode> code_;
  // By height, by whether the columns are the last and fewer, by the kind of depth block.
  std::array<std::array<std::array<TileFunction, depth_kinds>, 2>, tile_accumulators + 1>
      functions_{};
};

}  // namespace tessera::cpu
