// Generated code for a convolution's gradient by its weight, for few channels, specialised on the
// whole shape. Images lie as for WindowSumsCode. The sums of some output channels by some
// neighbouring elements of one kernel row stay in registers while rows of the images go by; between
// calls they lie in memory, one vector each.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/backend/cpu/kernels/x86/window/lanes.h"

namespace tessera::cpu {

struct WindowGrad {
  WindowAxis y, x;  // result: the gradient's side; source: the input's
  WindowLanes lanes = {};
};

struct WindowGradCall {
  const float* grad;    // the first row of the first output channel
  const float* source;  // the row of the input that it meets
  float* sums;          // [output channel][kernel element] of vectors
  int64_t rows;
};

class WindowGradCode : public LaneCode {
 public:
  // For `channels` output channels and the elements [first, first + count) of a kernel row.
  WindowGradCode(const WindowGrad& grad, int64_t channels, int64_t first, int64_t count);
  void operator()(const WindowGradCall& call) const { run_(&call); }

 private:
  void emit_row();
  void emit_tile(const WindowTile& tile);
  Xbyak::Ymm sum_of(int64_t set, int64_t channel, int64_t element) const;

  WindowGrad grad_;
  int64_t channels_, first_, count_;
  int64_t sets_ = 1;  // pixels take turns where one set of sums would wait for itself
  void (*run_)(const WindowGradCall*) = nullptr;
};

struct WindowGradBlocks {
  std::vector<int64_t> channels, elements;
};
// How output channels and the elements of a kernel row are best cut.
WindowGradBlocks window_grad_blocks(int64_t output_channels, int64_t kernel_width);

}  // namespace tessera::cpu
