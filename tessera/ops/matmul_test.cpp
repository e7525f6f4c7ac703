#include <gtest/gtest.h>

#include <limits>

#include "tessera/ops/test_run.h"

namespace tessera {
namespace {

using Values = std::vector<double>;
const RunTensor a = RunTensor::reals({1, 2}, {1, 2});
const RunTensor b = RunTensor::reals({2, 1}, {3, 4});

TEST(Addmm, ScalesOnlyWhereItMust) {
  const auto self = RunTensor::reals({1}, {10});
  const OpRun plain("addmm", {self, a, b});
  EXPECT_EQ(plain.results[0].values(), Values{21});
  EXPECT_EQ(plain.ran, (std::vector<std::string>{"matmul", "add"}));
  const OpRun scaled("addmm", {self, a, b}, {{"beta", 2.0}, {"alpha", -1.0}});
  EXPECT_EQ(scaled.results[0].values(), Values{9});
}

TEST(Addmm, DoesNotLookAtSelfWhenBetaIsZero) {
  const auto self = RunTensor::reals({1}, {std::numeric_limits<double>::quiet_NaN()});
  EXPECT_EQ(OpRun("addmm", {self, a, b}, {{"beta", 0.0}}).results[0].values(), Values{11});
}

TEST(Matmul, SaysWhatDoesNotFit) {
  EXPECT_THROW(OpRun("matmul", {a, a}), Error);
  EXPECT_THROW(OpRun("matmul", {a, RunTensor::integers({2, 1}, {3, 4})}), Error);
  EXPECT_THROW(OpRun("matmul", {RunTensor::reals({2}, {1, 2}), b}), Error);
}

}  // namespace
}  // namespace tessera
