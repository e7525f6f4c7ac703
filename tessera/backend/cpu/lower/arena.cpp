#include "tessera/backend/cpu/lower/arena.h"

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

namespace tessera::cpu {
namespace {

bool overlap_in_time(const Buffer& a, const Buffer& b) {
  return a.first_call <= b.last_call && b.first_call <= a.last_call;
}

// The tightest gap between buffers that live at the same time; after the last of them if none fits.
// `placed` is sorted by offset.
int64_t find_offset(const Buffer& buffer, const std::vector<const Buffer*>& placed) {
  const int64_t wanted = aligned(buffer.bytes);
  int64_t best = -1, best_gap = std::numeric_limits<int64_t>::max(), end = 0;
  for (const Buffer* other : placed) {
    if (!overlap_in_time(buffer, *other)) continue;
    const int64_t gap = other->offset - end;
    if (gap >= wanted && gap < best_gap) {
      best = end;
      best_gap = gap;
    }
    end = std::max(end, other->offset + aligned(other->bytes));
  }
  return best >= 0 ? best : end;
}

int64_t most_alive(const std::vector<Buffer*>& buffers) {
  std::map<int64_t, int64_t> change;  // bytes, by call
  for (const Buffer* buffer : buffers) {
    change[buffer->first_call] += aligned(buffer->bytes);
    change[buffer->last_call + 1] -= aligned(buffer->bytes);
  }
  int64_t alive = 0, most = 0;
  for (const auto& [call, bytes] : change) {
    alive += bytes;
    most = std::max(most, alive);
  }
  return most;
}

}  // namespace

ArenaSizes assign_arena(std::span<Buffer> buffers) {
  std::vector<Buffer*> order;
  for (Buffer& buffer : buffers) {
    if (buffer.space == Space::arena) order.push_back(&buffer);
  }
  ArenaSizes sizes;
  sizes.lower_bound_bytes = most_alive(order);
  std::stable_sort(order.begin(), order.end(), [](const Buffer* a, const Buffer* b) {
    return aligned(a->bytes) > aligned(b->bytes);
  });
  std::vector<const Buffer*> placed;
  for (Buffer* buffer : order) {
    buffer->offset = find_offset(*buffer, placed);
    sizes.bytes = std::max(sizes.bytes, buffer->offset + aligned(buffer->bytes));
    sizes.without_reuse_bytes += aligned(buffer->bytes);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), buffer,
                         [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; }),
        buffer);
  }
  return sizes;
}

}  // namespace tessera::cpu
