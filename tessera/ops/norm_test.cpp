#include <gtest/gtest.h>

#include "tessera/ops/test_run.h"

namespace tessera {
namespace {

using Values = std::vector<double>;
const RunTensor x = RunTensor::reals({2, 1}, {1, 3});
const RunTensor none = RunTensor::none();

TEST(BatchNorm, HasRunningResultsOnlyWhereTheyAreGiven) {
  const OpRun run("batch_norm", {x, none, none, none, none}, {{"training", true}, {"eps", 0.0}});
  ASSERT_EQ(run.results.size(), 3U);
  EXPECT_EQ(run.results[0].values(), (Values{-1, 1}));
}

TEST(BatchNorm, EvaluatesWithRunningStatisticsAndKeepsThem) {
  const auto mean = RunTensor::reals({1}, {5});
  const auto var = RunTensor::reals({1}, {4});
  const OpRun run("batch_norm", {x, none, none, mean, var}, {{"training", false}, {"eps", 0.0}});
  ASSERT_EQ(run.results.size(), 5U);
  EXPECT_EQ(run.results[0].values(), (Values{-2, -1}));
  EXPECT_EQ(run.results[1].type.shape, Shape{0});
  EXPECT_EQ(run.results[3].values(), Values{5});
  EXPECT_EQ(run.results[4].values(), Values{4});
}

TEST(BatchNorm, CannotEvaluateWithoutStatistics) {
  EXPECT_THROW(OpRun("batch_norm", {x, none, none, none, none}, {{"training", false}}), Error);
}

TEST(BatchNormBackward, LeavesOutWhatTheMaskDoes) {
  const auto mean = RunTensor::reals({1}, {2});
  const auto invstd = RunTensor::reals({1}, {1});
  const OpRun run("batch_norm_backward", {x, x, none, none, none, mean, invstd},
                  {{"train", true}, {"output_mask", std::vector<int64_t>{0, 1, 0}}});
  EXPECT_EQ(run.results[0].values(), (Values{0, 0}));
  EXPECT_EQ(run.results[1].values(), Values{2});
}

TEST(LayerNorm, NormalisesOnlyLastDimensions) {
  EXPECT_THROW(
      OpRun("layer_norm", {x, none, none}, {{"normalized_shape", std::vector<int64_t>{2}}}), Error);
}

}  // namespace
}  // namespace tessera
