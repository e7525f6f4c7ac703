// Generated code for sums over windows: the convolution and its gradient by the input, for few
// channels, specialised on the whole shape. Images are [channels][height][width] of vectors of
// eight floats (one of eight images each). A tile of some result channels by some neighbouring
// pixels is kept in registers; weights are broadcast from where they lie. Elements of a kernel that
// fall outside the image are left out rather than multiplied by zeros.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/backend/cpu/kernels/generated_code.h"

namespace tessera::cpu {

// One axis: which source position each result position meets through each kernel element.
struct WindowAxis {
  int64_t result = 0, source = 0, kernel = 0, stride = 1, padding = 0;
  bool backward = false;  // from a convolution's result back to its input

  static constexpr int64_t none = -1;
  int64_t met(int64_t position, int64_t element) const;
};

struct WindowSums {
  WindowAxis y, x;
  int64_t result_channels = 0, source_channels = 0;
  int64_t result_channel_stride = 0, source_channel_stride = 0;  // of the weight, in elements
  bool bias = false;

  int64_t multiply_adds() const;  // for one group of eight images
};

// One row of the result: what of the source it begins with and how many kernel rows it meets.
struct WindowRow {
  int64_t source, weight, result;  // bytes
  int64_t kernel_rows;
};
std::vector<WindowRow> window_rows(const WindowSums& sums);

struct WindowCall {
  const float* source;    // the group of images
  const float* weight;    // of the first result channel
  const float* bias;      // of the first result channel
  float* result;          // the first result channel's plane
  const WindowRow* rows;  // these rows are computed
  const WindowRow* rows_end;
};

// The code for `channels` result channels.
class WindowSumsCode : public GeneratedCode {
 public:
  WindowSumsCode(const WindowSums& sums, int64_t channels);
  void operator()(const WindowCall& call) const { run_(&call); }

 private:
  struct Tile;
  void emit_row();
  void emit_tile(const Tile& tile);
  void emit_taps(const Tile& tile);

  WindowSums sums_;
  int64_t channels_;
  void (*run_)(const WindowCall*) = nullptr;
};

// How the result's channels are best cut into blocks.
std::vector<int64_t> window_channel_blocks(const WindowSums& sums);

}  // namespace tessera::cpu
