// Generated code for sums over windows: the convolution and its gradient by the input, for few
// channels, specialised on the whole shape. Images are [channels][height][width], either of vectors
// of eight floats (one of eight images each), or of floats, eight of a row to a vector. A tile of
// some result channels by some neighbouring pixels is kept in registers; weights are broadcast from
// where they lie. Elements of a kernel that fall outside the image are left out rather than
// multiplied by zeros.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tessera/backend/cpu/kernels/x86/generated_code.h"

namespace tessera::cpu {

// One axis: which source position each result position meets through each kernel element.
struct WindowAxis {
  int64_t result = 0, source = 0, kernel = 0, stride = 1, padding = 0;
  bool backward = false;  // from a convolution's result back to its input

  static constexpr int64_t none = -1;
  int64_t met(int64_t position, int64_t element) const;
};

// How pixels lie in vectors.
struct WindowLanes {
  bool of_a_row = false;  // eight pixels of a row; otherwise one pixel of eight images

  int64_t pixels() const { return of_a_row ? 8 : 1; }  // of a vector
  int64_t pixel_bytes() const { return of_a_row ? 4 : 32; }
  int64_t vectors(int64_t width) const { return (width + pixels() - 1) / pixels(); }
  uint32_t all() const { return (1U << pixels()) - 1; }
  // The first pixel of a vector. The last vector of a row begins earlier where it would reach over
  // the end.
  int64_t first(int64_t vector, int64_t width) const;
  uint32_t inside(int64_t vector, int64_t width) const;  // the lanes that lie in the row,
  uint32_t fresh(int64_t vector, int64_t width) const;   // and in no vector before
};

// What a vector of pixels meets through one kernel element: the lanes that meet something, and
// which position the first lane does, or would were it not outside.
struct WindowMeeting {
  uint32_t lanes = 0;
  int64_t source = 0;

  bool operator==(const WindowMeeting&) const = default;
};
WindowMeeting meeting_of(const WindowAxis& x, const WindowLanes& lanes, int64_t vector,
                         int64_t element);

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

// Code that reads and writes some lanes of a vector and leaves the memory of others alone.
class LaneCode : public GeneratedCode {
 protected:
  explicit LaneCode(const WindowLanes& lanes) : lanes_(lanes) {}

  void load(const Xbyak::Ymm& to, const Xbyak::Address& from, uint32_t lanes);
  void store(const Xbyak::Address& to, const Xbyak::Ymm& from, uint32_t lanes,
             const Xbyak::Ymm& spare);
  void emit_masks();  // after the last instruction

  WindowLanes lanes_;

 private:
  std::map<uint32_t, Xbyak::Label> masks_;
};

// The code for `channels` result channels.
class WindowSumsCode : public LaneCode {
 public:
  WindowSumsCode(const WindowSums& sums, int64_t channels);
  void operator()(const WindowCall& call) const { run_(&call); }

 private:
  struct Tile;
  void emit_row();
  void emit_tile(const Tile& tile);
  void emit_start(const Tile& tile);
  void emit_sums(const Tile& tile);
  void emit_taps(const Tile& tile, int64_t source_channel);

  WindowSums sums_;
  int64_t channels_;
  void (*run_)(const WindowCall*) = nullptr;
};

// How the result's channels are best cut into blocks.
std::vector<int64_t> window_channel_blocks(const WindowSums& sums);

}  // namespace tessera::cpu
