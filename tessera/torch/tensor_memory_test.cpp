#include "tessera/torch/tensor_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(TensorMemory, IsGoneWhereTheStorageIsTooSmall) {
  const at::Tensor whole = at::ones({4, 3});
  const at::Tensor columns = whole.t();
  EXPECT_TRUE(has_memory(whole) && has_memory(columns));
  whole.storage().unsafeGetStorageImpl()->set_nbytes(11 * sizeof(float));
  EXPECT_FALSE(has_memory(whole) || has_memory(columns));
  EXPECT_TRUE(has_memory(whole.narrow(0, 0, 3)));
  EXPECT_TRUE(has_memory(at::empty({0, 3})));
}

TEST(TensorMemory, IsSharedWhereElementsMayMeet) {
  const at::Tensor whole = at::ones({4, 3});
  EXPECT_TRUE(share_memory(whole, whole.narrow(0, 1, 2)));
  EXPECT_FALSE(share_memory(whole.narrow(0, 0, 2), whole.narrow(0, 2, 2)));
  EXPECT_FALSE(share_memory(whole, whole.clone()));
  EXPECT_EQ(memory_of(whole), memory_of(whole.narrow(0, 1, 2)));
}

TEST(TensorMemory, AWindowIsTheSameElementsInTheSameOrder) {
  const at::Tensor square = at::ones({3, 3});
  EXPECT_TRUE(same_window(square, square.detach()));
  EXPECT_FALSE(same_window(square, square.t()));
  EXPECT_FALSE(same_window(square, square.narrow(0, 0, 2)));
  EXPECT_FALSE(same_window(square, square.clone()));
}

TEST(TensorMemory, ChangesInPlaceAreCounted) {
  const at::Tensor tensor = at::ones({3});
  const uint32_t before = change_count(tensor);
  tensor.add_(1);
  EXPECT_GT(change_count(tensor), before);
}

}  // namespace
}  // namespace tessera
