// Generated code for sums over windows: the convolution and its gradient by the input, for few
// channels, specialised on the whole shape. Images are [channels][height][width], either of vectors
// of eight floats (one of eight images each), or of floats, eight of a row to a vector. A tile of
// some result channels by some neighbouring pixels is kept in registers; weights are broadcast from
// where they lie. Elements of a kernel that fall outside the image are left out rather than
// multiplied by zeros.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/backend/cpu/kernels/x86/window/lanes.h"

namespace tessera::cpu {

struct WindowSums {
  WindowAxis y, x;  // where lanes are of a row, the stride of x is 1
  WindowLanes lanes = {};
  int64_t result_channels = 0, source_channels = 0;
  int64_t result_channel_stride = 0, source_channel_stride = 0;  // of the weight, in elements
  bool bias = false;
  bool adds = false;  // to what the result holds
  // In bytes, where images do not lie as described above; 0: they do.
  int64_t source_pixel = 0, source_plane = 0, result_pixel = 0, result_plane = 0;

  int64_t source_pixel_bytes() const { return source_pixel ? source_pixel : lanes.pixel_bytes(); }
  int64_t result_pixel_bytes() const { return result_pixel ? result_pixel : lanes.pixel_bytes(); }
  int64_t source_plane_bytes() const {
    return source_plane ? source_plane : y.source * x.source * lanes.pixel_bytes();
  }
  int64_t result_plane_bytes() const {
    return result_plane ? result_plane : y.result * x.result * lanes.pixel_bytes();
  }
  int64_t multiply_adds() const;  // for one image, or eight where they share vectors
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
class WindowSumsCode : public LaneCode {
 public:
  WindowSumsCode(const WindowSums& sums, int64_t channels);
  void operator()(const WindowCall& call) const { run_(&call); }

 private:
  const std::vector<uint32_t>& written(const WindowTile& tile) const;
  void emit_row();
  void emit_tile(const WindowTile& tile);
  void emit_start(const WindowTile& tile);
  void emit_sums(const WindowTile& tile);
  void emit_taps(const WindowTile& tile, int64_t source_channel);

  WindowSums sums_;
  int64_t channels_;
  void (*run_)(const WindowCall*) = nullptr;
};

// How the result's channels are best cut into blocks.
std::vector<int64_t> window_channel_blocks(const WindowSums& sums);

}  // namespace tessera::cpu
