#include "tessera/backend/cpu/lower/arena.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tessera::cpu {
namespace {

Buffer buffer(int64_t bytes, int64_t first, int64_t last) {
  return {Space::arena, 0, 0, bytes, first, last};
}

bool overlap(const Buffer& a, const Buffer& b) {
  return a.first_call <= b.last_call && b.first_call <= a.last_call &&
         a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

TEST(Arena, ReusesTheMemoryOfDeadBuffers) {
  std::vector<Buffer> buffers = {buffer(100, 0, 1), buffer(100, 1, 2), buffer(100, 2, 3)};
  const ArenaSizes sizes = assign_arena(buffers);
  EXPECT_EQ(sizes.bytes, 256);
  EXPECT_EQ(sizes.lower_bound_bytes, 256);
  EXPECT_EQ(sizes.without_reuse_bytes, 384);
  EXPECT_EQ(buffers[0].offset, buffers[2].offset);
}

TEST(Arena, LeavesOtherSpacesAlone) {
  std::vector<Buffer> buffers = {{Space::state, 0, 4096, 64, 0, 9}, buffer(64, 0, 9)};
  EXPECT_EQ(assign_arena(buffers).bytes, 64);
  EXPECT_EQ(buffers[0].offset, 4096);
}

TEST(Arena, NeverLetsLiveBuffersOverlap) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Buffer> buffers;
    const auto count = 1 + random() % 40;
    for (size_t i = 0; i < count; ++i) {
      const auto first = static_cast<int64_t>(random() % 30);
      buffers.push_back(buffer(static_cast<int64_t>(random() % 1000), first,
                               first + static_cast<int64_t>(random() % 8)));
    }
    const ArenaSizes sizes = assign_arena(buffers);
    EXPECT_GE(sizes.bytes, sizes.lower_bound_bytes);
    EXPECT_LE(sizes.bytes, sizes.without_reuse_bytes);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(buffers[i].offset % memory_alignment, 0);
      EXPECT_LE(buffers[i].offset + buffers[i].bytes, sizes.bytes);
      for (size_t k = 0; k < i; ++k) EXPECT_FALSE(overlap(buffers[i], buffers[k]));
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
