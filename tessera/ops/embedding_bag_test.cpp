#include <gtest/gtest.h>

#include "tessera/ops/run_op_for_test.h"

namespace tessera {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;

const HostTensor weight = floats({3, 2}, {1, 2, 3, 4, 5, 6});
const HostTensor indices = ints({4}, {0, 2, 1, 1});

TEST(EmbeddingBag, FoldsBagByBag) {
  const auto offsets = ints({3}, {0, 2, 2});  // the second bag is empty
  const OpRun sums("embedding_bag", {weight, indices, offsets});
  EXPECT_EQ(sums[0].elements<float>(), (Floats{6, 8, 0, 0, 6, 8}));
  EXPECT_EQ(sums[1].elements<int32_t>(), (Ints{0, 0, 2, 2}));
  EXPECT_EQ(sums[2].elements<int32_t>(), (Ints{2, 0, 2}));
  const OpRun means("embedding_bag", {weight, indices, offsets}, {{"mode", int64_t{1}}});
  EXPECT_EQ(means[0].elements<float>(), (Floats{3, 4, 0, 0, 3, 4}));
  const OpRun maxima("embedding_bag", {weight, indices, offsets}, {{"mode", int64_t{2}}});
  EXPECT_EQ(maxima[0].elements<float>(), (Floats{5, 6, 0, 0, 3, 4}));
  EXPECT_EQ(maxima[3].elements<int32_t>(), (Ints{2, 2, 0, 0, 1, 1}));
}

TEST(EmbeddingBag, KnowsTheEndOfTheLastBagAndPadding) {
  const OpRun run("embedding_bag", {weight, indices, ints({2}, {0, 3})},
                  {{"include_last_offset", true}, {"padding_idx", int64_t{2}}});
  EXPECT_EQ(run[0].elements<float>(), (Floats{4, 6}));
  EXPECT_EQ(run[1].elements<int32_t>(), (Ints{0, 0, 0, -1}));
  EXPECT_EQ(run[2].elements<int32_t>(), Ints{2});
}

TEST(EmbeddingBag, RefusesOffsetsThatFallAndRowsThatAreNotThere) {
  EXPECT_THROW(OpRun("embedding_bag", {weight, indices, ints({2}, {0, 5})}), Error);
  EXPECT_THROW(OpRun("embedding_bag", {weight, indices, ints({2}, {1, 2})}), Error);
  EXPECT_THROW(OpRun("embedding_bag", {weight, ints({1}, {3}), ints({1}, {0})}), Error);
}

}  // namespace
}  // namespace tessera
