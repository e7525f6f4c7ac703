#include <gtest/gtest.h>

#include "tessera/ops/test_run.h"

namespace tessera {
namespace {

using Values = std::vector<double>;
const RunTensor x = RunTensor::reals({3, 2}, {0, 1, 2, 3, 4, 5});
const RunTensor mask = RunTensor::of(DType::boolean, {3}, {1, 0, 1});

TEST(Index, CannotSelectByMask) { EXPECT_THROW(OpRun("index", {x, mask}), Error); }

TEST(IndexPut, OfOneValueByMaskIsAChoice) {
  const auto value = RunTensor::reals({}, {9});
  const OpRun set("index_put", {x, value, mask});
  EXPECT_EQ(set.results[0].values(), (Values{9, 9, 2, 3, 9, 9}));
  const OpRun added("index_put", {x, value, mask}, {{"accumulate", true}});
  EXPECT_EQ(added.results[0].values(), (Values{9, 10, 2, 3, 13, 14}));
  EXPECT_THROW(OpRun("index_put", {x, RunTensor::reals({2, 2}, {1, 2, 3, 4}), mask}), Error);
}

TEST(IndexPut, BroadcastsItsValues) {
  const OpRun run("index_put",
                  {x, RunTensor::reals({2}, {8, 9}), RunTensor::integers({2}, {2, -3})});
  EXPECT_EQ(run.results[0].values(), (Values{8, 9, 2, 3, 8, 9}));
}

TEST(Embedding, RefusesRowsThatAreNotThere) {
  EXPECT_THROW(OpRun("embedding", {x, RunTensor::integers({1}, {3})}), Error);
}

TEST(EmbeddingBackward, SkipsPaddingAndDividesByFrequency) {
  const auto grad = RunTensor::reals({4, 1}, {1, 2, 4, 8});
  const auto index = RunTensor::integers({4}, {0, 1, 1, 2});
  const OpRun run(
      "embedding_dense_backward", {grad, index},
      {{"num_weights", int64_t{3}}, {"padding_idx", int64_t{0}}, {"scale_grad_by_freq", true}});
  EXPECT_EQ(run.results[0].values(), (Values{0, 3, 8}));
}

TEST(OneHot, NeedsItsNumberOfClasses) {
  const auto index = RunTensor::integers({2}, {2, 0});
  EXPECT_EQ(OpRun("one_hot", {index}, {{"num_classes", int64_t{3}}}).results[0].values(),
            (Values{0, 0, 1, 1, 0, 0}));
  EXPECT_THROW(OpRun("one_hot", {index}, {{"num_classes", int64_t{-1}}}), Error);
  EXPECT_THROW(OpRun("one_hot", {index}, {{"num_classes", int64_t{2}}}), Error);
}

}  // namespace
}  // namespace tessera
