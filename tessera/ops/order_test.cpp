#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tessera/ops/run_op_for_test.h"

namespace tessera {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t first_dim = 0;

TEST(Median, IsTheLowerOneAndTheFirstOfEqualOnes) {
  const OpRun run("median", {floats({4}, {3, 1, 3, 1})}, {{"dim", first_dim}});
  EXPECT_EQ(run[0].elements<float>(), Floats{1});
  EXPECT_EQ(run[1].elements<int32_t>(), Ints{3});
}

TEST(Median, OfNanIsTheFirstNan) {
  const auto x = floats({5}, {3, nan, 1, nan, 2});
  const OpRun run("median", {x}, {{"dim", first_dim}});
  EXPECT_TRUE(std::isnan(run[0].elements<float>()[0]));
  EXPECT_EQ(run[1].elements<int32_t>(), Ints{1});
  const OpRun skipping("nanmedian", {x}, {{"dim", first_dim}});
  EXPECT_EQ(skipping[0].elements<float>(), Floats{2});
  EXPECT_TRUE(std::isnan(
      OpRun("nanmedian", {floats({2}, {nan, nan})}, {{"dim", first_dim}})[0].elements<float>()[0]));
}

TEST(KthValue, CountsFromOne) {
  const auto x = ints({4}, {7, -2, 5, 0});
  EXPECT_EQ(OpRun("kthvalue", {x}, {{"k", int64_t{1}}})[0].elements<int32_t>(), Ints{-2});
  EXPECT_EQ(OpRun("kthvalue", {x}, {{"k", int64_t{4}}})[0].elements<int32_t>(), Ints{7});
  EXPECT_THROW(OpRun("kthvalue", {x}, {{"k", int64_t{5}}}), Error);
  EXPECT_THROW(OpRun("kthvalue", {x}, {{"k", int64_t{0}}}), Error);
}

TEST(Mode, IsTheSmallestOfTheMostFrequent) {
  const OpRun run("mode", {ints({6}, {4, 2, 4, 2, 1, 9})}, {{"dim", first_dim}});
  EXPECT_EQ(run[0].elements<int32_t>(), Ints{2});
  EXPECT_EQ(run[1].elements<int32_t>(), Ints{3});
}

TEST(SearchSorted, InsertsBeforeOrAfterEqualOnes) {
  const auto sorted = floats({4}, {1, 2, 2, 5});
  const auto values = floats({2, 3}, {0, 2, 6, 1, 5, nan});
  EXPECT_EQ(OpRun("searchsorted", {sorted, values})[0].elements<int32_t>(),
            (Ints{0, 1, 4, 0, 3, 4}));
  EXPECT_EQ(OpRun("searchsorted", {sorted, values}, {{"right", true}})[0].elements<int32_t>(),
            (Ints{0, 3, 4, 1, 4, 4}));
  EXPECT_EQ(OpRun("searchsorted", {sorted, values}, {{"side", std::string("right")}})[0]
                .elements<int32_t>(),
            (Ints{0, 3, 4, 1, 4, 4}));
}

TEST(SearchSorted, HasALineForEachLineAndAnOrder) {
  const auto unsorted = ints({2, 3}, {5, 1, 3, 20, 10, 30});
  const auto order = ints({2, 3}, {1, 2, 0, 1, 0, 2});
  const auto values = ints({2, 2}, {2, 6, 25, 5});
  EXPECT_EQ(OpRun("searchsorted", {unsorted, values, order})[0].elements<int32_t>(),
            (Ints{1, 3, 2, 0}));
  EXPECT_THROW(OpRun("searchsorted", {unsorted, ints({3, 2}, {1, 2, 3, 4, 5, 6})}), Error);
}

TEST(IsIn, NeverFindsNan) {
  const auto x = floats({3}, {nan, 1, 2});
  const auto set = floats({2}, {nan, 2});
  EXPECT_EQ(OpRun("isin", {x, set})[0].elements<uint8_t>(), (std::vector<uint8_t>{0, 0, 1}));
  EXPECT_EQ(OpRun("isin", {x, set}, {{"invert", true}})[0].elements<uint8_t>(),
            (std::vector<uint8_t>{1, 1, 0}));
}

}  // namespace
}  // namespace tessera
