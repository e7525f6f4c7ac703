// What code for windows has in common: which pixels a row of the kernel meets, how they lie in
// vectors, and how vectors are read and written where some lanes are none of theirs.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tessera/backend/cpu/kernels/x86/generated_code.h"
#include "tessera/base/divided_up.h"

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
  int64_t vectors(int64_t width) const { return divided_up(width, pixels()); }
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

// Neighbouring vectors of pixels that are computed together, and how often the same code serves,
// each time some pixels of result and source further.
struct WindowTile {
  // `count` vectors from `first` on, through the elements [first_element, first_element + elements)
  // of a kernel row.
  WindowTile(const WindowAxis& x, const WindowLanes& lanes, int64_t first, int64_t count,
             int64_t first_element, int64_t elements);

  // Whether `next` is this tile once more; if so, it is counted among its repeats.
  bool takes(const WindowTile& next);
  const WindowMeeting& met(int64_t vector, int64_t element) const {
    return meetings[static_cast<size_t>(vector * elements + element)];
  }

  int64_t vectors, elements;
  int64_t first_pixel, first_source = 0;
  std::vector<WindowMeeting> meetings;  // [vector][element], relative to first_source
  std::vector<int64_t> pixels;          // [vector] the first of each, relative to first_pixel
  std::vector<uint32_t> inside, fresh;  // [vector] as WindowLanes has them
  int64_t repeats = 1, pixel_step, source_step = 0;
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

}  // namespace tessera::cpu
