#include <gtest/gtest.h>

#include "tessera/ops/run_op_for_test.h"

namespace tessera {
namespace {

using Floats = std::vector<float>;
const HostTensor x = floats({3, 2}, {0, 1, 2, 3, 4, 5});
const HostTensor mask = bools({3}, {1, 0, 1});

TEST(Index, CannotSelectByMask) { EXPECT_THROW(OpRun("index", {x, mask}), Error); }

TEST(IndexPut, OfOneValueByMaskIsAChoice) {
  const auto value = floats({}, {9});
  const OpRun set("index_put", {x, value, mask});
  EXPECT_EQ(set[0].elements<float>(), (Floats{9, 9, 2, 3, 9, 9}));
  const OpRun added("index_put", {x, value, mask}, {{"accumulate", true}});
  EXPECT_EQ(added[0].elements<float>(), (Floats{9, 10, 2, 3, 13, 14}));
  EXPECT_THROW(OpRun("index_put", {x, floats({2, 2}, {1, 2, 3, 4}), mask}), Error);
}

TEST(IndexPut, BroadcastsItsValues) {
  const OpRun run("index_put", {x, floats({2}, {8, 9}), ints({2}, {2, -3})});
  EXPECT_EQ(run[0].elements<float>(), (Floats{8, 9, 2, 3, 8, 9}));
}

TEST(Embedding, RefusesRowsThatAreNotThere) {
  EXPECT_THROW(OpRun("embedding", {x, ints({1}, {3})}), Error);
}

TEST(EmbeddingBackward, SkipsPaddingAndDividesByFrequency) {
  const auto grad = floats({4, 1}, {1, 2, 4, 8});
  const auto index = ints({4}, {0, 1, 1, 2});
  const OpRun run(
      "embedding_dense_backward", {grad, index},
      {{"num_weights", int64_t{3}}, {"padding_idx", int64_t{0}}, {"scale_grad_by_freq", true}});
  EXPECT_EQ(run[0].elements<float>(), (Floats{0, 3, 8}));
}

TEST(OneHot, NeedsItsNumberOfClasses) {
  const auto index = ints({2}, {2, 0});
  EXPECT_EQ(OpRun("one_hot", {index}, {{"num_classes", int64_t{3}}})[0].elements<int32_t>(),
            (std::vector<int32_t>{0, 0, 1, 1, 0, 0}));
  EXPECT_THROW(OpRun("one_hot", {index}, {{"num_classes", int64_t{-1}}}), Error);
  EXPECT_THROW(OpRun("one_hot", {index}, {{"num_classes", int64_t{2}}}), Error);
}

}  // namespace
}  // namespace tessera
