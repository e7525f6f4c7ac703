// Winograd's convolution from images to images: the convolution itself, and the gradient by its
// input, which is a convolution with weights turned around.
//
// Where weights are small against the images, they are transformed once, and each piece of the work
// takes a block of tiles through all steps while it lies in the cache. Where weights are large and
// images few, the images are transformed once instead, and each piece takes some output channels,
// so that transformed weights never leave the cache.
#pragma once

#include "tessera/backend/cpu/kernels/epilogue_kernel.h"
#include "tessera/backend/cpu/kernels/x86/winograd/gemm.h"
#include "tessera/backend/cpu/kernels/x86/winograd/tiles.h"
#include "tessera/backend/cpu/kernels/x86/winograd/transform.h"

namespace tessera::cpu {

class WinogradImages : public PreparedKernel, public EpilogueKernel {
 public:
  enum class Direction { forward, input_grad };
  // Which operands are halves.
  struct Halves {
    bool images = false, weights = false, bias = false;
    bool result = false;  // which is handed out in boxes with rooms of their own
  };

  // The shape is that of the convolution that is computed: for input_grad, from the gradient.
  WinogradImages(const WinogradShape& shape, int tile, Direction direction, Halves halves);

  int64_t workspace_bytes() const override;
  // inputs: images, weights [O/8, I/8, 3, 3, 8 of I, 8 of O] as the row has them, bias?
  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    run_with_epilogue(call, workspace, Epilogue{});
  }
  void run_with_epilogue(KernelState&, const KernelCall& call, std::span<std::byte> workspace,
                         const Epilogue& epilogue) const override {
    run_with_epilogue(call, workspace, epilogue);
  }
  void run_with_epilogue(const KernelCall& call, std::span<std::byte> workspace,
                         const Epilogue& epilogue) const;

 private:
  struct Operands;
  enum class Sharing { weights, images };

  static Sharing sharing_of(const WinogradShape& shape, int tile);
  static int64_t block_tiles(const WinogradShape& shape, int tile);

  int64_t columns(int64_t column_block) const;  // 16, or the last 8
  int64_t v_floats() const { return transform_.elements * v_stride_; }
  int64_t u_floats() const { return transform_.elements * u_stride_; }
  int64_t m_floats() const { return transform_.elements * m_stride_; }
  int64_t box_floats() const;
  int64_t room_floats() const;
  int64_t rooms() const;
  int64_t shared_floats() const;
  int64_t bias_floats() const;   // of one that is widened
  int64_t images_chunk() const;  // blocks whose images are transformed at a time

  void transform_weights(const Operands& o, int64_t column_block, int64_t begin, int64_t end,
                         float* u) const;
  void transform_images(const Operands& o, const TileBlock& block, int64_t begin, int64_t end,
                        float* v) const;
  template <typename Element>
  void transform_images_of(const Element* images, const TileBlock& block, int64_t begin,
                           int64_t end, float* v) const;
  // `m` is followed by room for a box.
  void multiply(const Operands& o, const TileBlock& block, int64_t column_block, const float* v,
                const float* u, float* m, const Epilogue& epilogue) const;
  void run_sharing_weights(const Operands& o, float* workspace, const Epilogue& epilogue) const;
  void run_sharing_images(const Operands& o, float* workspace, const Epilogue& epilogue) const;

  WinogradShape shape_;
  const WinogradTransform& transform_;
  Direction direction_;
  Halves halves_;
  Sharing sharing_;
  TileBlocks blocks_;
  int64_t column_blocks_;
  int64_t v_stride_, u_stride_, m_stride_;  // between elements of one block
  WinogradGemm gemm_;
};

}  // namespace tessera::cpu
