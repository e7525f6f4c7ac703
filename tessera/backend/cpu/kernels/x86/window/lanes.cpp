#include "tessera/backend/cpu/kernels/x86/window/lanes.h"

#include <algorithm>
#include <limits>

namespace tessera::cpu {

int64_t WindowAxis::met(int64_t position, int64_t element) const {
  int64_t at = position * stride - padding + element;
  if (backward) {
    at = position + padding - element;
    if (at < 0 || at % stride != 0) return none;
    at /= stride;
  }
  return at >= 0 && at < source ? at : none;
}

int64_t WindowLanes::first(int64_t vector, int64_t width) const {
  return std::max<int64_t>(0, std::min(vector * pixels(), width - pixels()));
}

uint32_t WindowLanes::inside(int64_t vector, int64_t width) const {
  const int64_t count = std::min(width - first(vector, width), pixels());
  return (1U << count) - 1;
}

uint32_t WindowLanes::fresh(int64_t vector, int64_t width) const {
  const int64_t before = vector * pixels() - first(vector, width);
  return inside(vector, width) & ~((1U << before) - 1);
}

WindowMeeting meeting_of(const WindowAxis& x, const WindowLanes& lanes, int64_t vector,
                         int64_t element) {
  WindowMeeting meeting;
  for (int64_t lane = 0; lane < lanes.pixels(); ++lane) {
    const int64_t position = lanes.first(vector, x.result) + lane;
    const int64_t at = position < x.result ? x.met(position, element) : WindowAxis::none;
    if (at == WindowAxis::none) continue;
    meeting.lanes |= 1U << lane;
    meeting.source = at - lane;
  }
  return meeting;
}

WindowTile::WindowTile(const WindowAxis& x, const WindowLanes& lanes, int64_t first, int64_t count,
                       int64_t first_element, int64_t element_count)
    : vectors(count),
      elements(element_count),
      first_pixel(lanes.first(first, x.result)),
      pixel_step(count * lanes.pixels()) {
  constexpr int64_t nothing = std::numeric_limits<int64_t>::max();
  int64_t least = nothing;
  for (int64_t vector = first; vector < first + count; ++vector) {
    pixels.push_back(lanes.first(vector, x.result) - first_pixel);
    inside.push_back(lanes.inside(vector, x.result));
    fresh.push_back(lanes.fresh(vector, x.result));
    for (int64_t k = 0; k < elements; ++k) {
      meetings.push_back(meeting_of(x, lanes, vector, first_element + k));
      if (meetings.back().lanes != 0) least = std::min(least, meetings.back().source);
    }
  }
  if (least == nothing) return;
  first_source = least;
  for (WindowMeeting& meeting : meetings) {
    if (meeting.lanes != 0) meeting.source -= first_source;
  }
}

bool WindowTile::takes(const WindowTile& next) {
  if (next.meetings != meetings || next.pixels != pixels) return false;
  if (next.inside != inside || next.fresh != fresh) return false;
  if (next.first_pixel != first_pixel + repeats * pixel_step) return false;
  const int64_t step = next.first_source - first_source;
  if (repeats > 1 && step != repeats * source_step) return false;
  if (repeats == 1) source_step = step;
  ++repeats;
  return true;
}

void LaneCode::load(const Xbyak::Ymm& to, const Xbyak::Address& from, uint32_t lanes) {
  if (lanes == lanes_.all()) return vmovups(to, from);
  vmovups(to, ptr[Xbyak::util::rip + masks_[lanes]]);
  vmaskmovps(to, to, from);
}

void LaneCode::store(const Xbyak::Address& to, const Xbyak::Ymm& from, uint32_t lanes,
                     const Xbyak::Ymm& spare) {
  if (lanes == lanes_.all()) return vmovups(to, from);
  vmovups(spare, ptr[Xbyak::util::rip + masks_[lanes]]);
  vmaskmovps(to, spare, from);
}

void LaneCode::emit_masks() {
  align(32);
  for (auto& [lanes, label] : masks_) {
    L(label);
    for (uint32_t lane = 0; lane < 8; ++lane) dd((lanes >> lane & 1) != 0 ? ~0U : 0U);
  }
}

}  // namespace tessera::cpu
