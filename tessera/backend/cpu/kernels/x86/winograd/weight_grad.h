// The gradient of a convolution by its weights, by Winograd's method: the transposes of its maps.
// For every element of the transformed tiles, the product of gradients and inputs is summed over
// all tiles.
//
// Sums are taken in steps, so that none has very many terms: over the tiles of a block in
// registers, over the blocks of a piece, over the pieces.
//
// Where the sums of all weights are small, each piece takes some blocks of tiles and has sums of
// its own. Where they are large and images few, the images are transformed once, and each piece
// takes some of the weights.
#pragma once

#include "tessera/backend/cpu/kernels/prepared_kernel.h"
#include "tessera/backend/cpu/kernels/x86/winograd/gemm.h"
#include "tessera/backend/cpu/kernels/x86/winograd/tiles.h"
#include "tessera/backend/cpu/kernels/x86/winograd/transform.h"

namespace tessera::cpu {

class WinogradWeightGrad : public PreparedKernel {
 public:
  // Which operands are halves.
  struct Halves {
    bool grad = false, images = false;
  };

  // The shape is that of the forward convolution.
  WinogradWeightGrad(const WinogradShape& shape, int tile, Halves halves);

  int64_t workspace_bytes() const override;
  // inputs: gradient of the result, images; output: [O/8, I/8, 3, 3, 8 of I, 8 of O]
  void run(const KernelCall& call, std::span<std::byte> workspace) const override;

 private:
  struct Operands;
  enum class Cut { tiles, weights };

  static Cut cut_of(const WinogradShape& shape, int tile);
  static int64_t block_tiles(const WinogradShape& shape, int tile);

  int64_t columns(int64_t column_block) const;  // 16, or the last 8
  int64_t v_floats() const { return transform_.elements * v_stride_; }
  int64_t y_floats() const { return transform_.elements * y_stride_; }
  int64_t block_floats() const { return v_floats() + y_floats(); }
  int64_t sum_floats() const { return transform_.elements * sum_stride_; }  // of 16 columns
  int64_t rooms() const;
  int64_t chunk() const;  // blocks that are transformed at a time

  void transform_input(const Operands& o, const TileBlock& block, int64_t begin, int64_t end,
                       float* v) const;
  void transform_grad(const Operands& o, const TileBlock& block, int64_t begin, int64_t end,
                      float* y) const;
  template <typename Element>
  void transform_input_of(const Element* images, const TileBlock& block, int64_t begin, int64_t end,
                          float* v) const;
  template <typename Element>
  void transform_grad_of(const Element* grad, const TileBlock& block, int64_t begin, int64_t end,
                         float* y) const;
  void add_block(const float* v, const float* y, int64_t tiles, int64_t column_block, int64_t begin,
                 int64_t end, float* sum, bool add) const;
  void write_weights(const Operands& o, const float* sum, int64_t column_block, int64_t begin,
                     int64_t end, bool add) const;
  void run_cutting_tiles(const Operands& o, float* workspace) const;
  void run_cutting_weights(const Operands& o, float* workspace) const;

  WinogradShape shape_;
  const WinogradTransform& transform_;
  Halves halves_;
  Cut cut_;
  TileBlocks blocks_;
  int64_t column_blocks_;
  int64_t in_cuts_, in_per_cut_;              // cutting weights: parts of the input channels
  int64_t pieces_;                            // cutting tiles
  int64_t v_stride_, y_stride_, sum_stride_;  // between elements
  WinogradGemm gemm_;
};

}  // namespace tessera::cpu
