#include "tessera/base/scratch.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace tessera {
namespace {

TEST(Scratch, IsUsedAgain) {
  const void* first = ScratchVector<float>(100).data();
  for (int i = 0; i < 3; ++i) {
    const ScratchVector<double> outer(10);
    EXPECT_EQ(outer.data(), first);
    const ScratchVector<char> inner(1000);
    EXPECT_NE(static_cast<const void*>(inner.data()), first);
  }
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0U);
}

TEST(Scratch, MayBeGivenBackInAnyOrder) {
  const void* first = ScratchVector<int>(1).data();
  for (int i = 0; i < 1000; ++i) {
    ScratchVector<int> kept(10, 1);
    {
      ScratchVector<int> moved(20, 2);
      ScratchVector<int> last(30, 3);
      kept = std::move(moved);  // its old block lies below others
      EXPECT_EQ(last, ScratchVector<int>(30, 3));
    }
    EXPECT_EQ(kept, ScratchVector<int>(20, 2));
  }
  EXPECT_EQ(static_cast<const void*>(ScratchVector<int>(1).data()), first);
}

TEST(Scratch, GrowsAndKeepsWhatItHas) {
  ScratchVector<int64_t> small(5, 7), large;
  for (int64_t i = 0; i < 300'000; ++i) large.push_back(i);
  EXPECT_EQ(small, ScratchVector<int64_t>(5, 7));
  for (int64_t i = 0; i < 300'000; ++i) ASSERT_EQ(large[static_cast<size_t>(i)], i);
}

TEST(Scratch, HasShapesLikeOthers) {
  const int64_t shape[] = {2, 1, 3}, strides[] = {5, 4, 1}, to[] = {4, 2, 6, 3}, row[] = {6, 1};
  EXPECT_EQ(scratch_strides(shape), (ScratchShape{3, 3, 1}));
  EXPECT_EQ(scratch_broadcast_strides(shape, strides, to), (ScratchShape{0, 5, 0, 1}));
  EXPECT_EQ(scratch_broadcast(shape, row), (ScratchShape{2, 6, 3}));
  EXPECT_EQ(scratch_copy(row), (ScratchShape{6, 1}));
}

}  // namespace
}  // namespace tessera
