#include <gtest/gtest.h>

#include "tessera/ops/run_op_for_test.h"

namespace tessera {
namespace {

using Floats = std::vector<float>;
const HostTensor x = floats({2, 1}, {1, 3});
const HostTensor none = left_out();

TEST(BatchNorm, HasRunningResultsOnlyWhereTheyAreGiven) {
  const OpRun run("batch_norm", {x, none, none, none, none}, {{"training", true}, {"eps", 0.0}});
  ASSERT_EQ(run.size(), 3U);
  EXPECT_EQ(run[0].elements<float>(), (Floats{-1, 1}));
}

TEST(BatchNorm, EvaluatesWithRunningStatisticsAndKeepsThem) {
  const auto mean = floats({1}, {5});
  const auto var = floats({1}, {4});
  const OpRun run("batch_norm", {x, none, none, mean, var}, {{"training", false}, {"eps", 0.0}});
  ASSERT_EQ(run.size(), 5U);
  EXPECT_EQ(run[0].elements<float>(), (Floats{-2, -1}));
  EXPECT_EQ(run[1].type.shape, Shape{0});
  EXPECT_EQ(run[3].elements<float>(), Floats{5});
  EXPECT_EQ(run[4].elements<float>(), Floats{4});
}

TEST(BatchNorm, CannotEvaluateWithoutStatistics) {
  EXPECT_THROW(OpRun("batch_norm", {x, none, none, none, none}, {{"training", false}}), Error);
}

TEST(BatchNormBackward, LeavesOutWhatTheMaskDoes) {
  const auto mean = floats({1}, {2});
  const auto invstd = floats({1}, {1});
  const OpRun run("batch_norm_backward", {x, x, none, none, none, mean, invstd},
                  {{"train", true}, {"output_mask", std::vector<int64_t>{0, 1, 0}}});
  EXPECT_EQ(run[0].elements<float>(), (Floats{0, 0}));
  EXPECT_EQ(run[1].elements<float>(), Floats{2});
}

TEST(LayerNorm, NormalisesOnlyLastDimensions) {
  EXPECT_THROW(
      OpRun("layer_norm", {x, none, none}, {{"normalized_shape", std::vector<int64_t>{2}}}), Error);
}

}  // namespace
}  // namespace tessera
