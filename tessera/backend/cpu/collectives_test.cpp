#include "tessera/backend/cpu/collectives.h"

#include <gtest/gtest.h>

#include "tessera/backend/cpu/lower/lower.h"
#include "tessera/passes/read_graph.h"

namespace tessera::cpu {
namespace {

Plan plan_of(std::string_view text) { return lower(read_graph(text), {}); }

// The call of the micro-batch after which the only collective may begin; nothing where it must wait
// for its turn.
std::optional<std::string> begins_after(std::string_view text) {
  const Plan plan = plan_of(text);
  const auto found = collectives_of(plan);
  EXPECT_EQ(found.size(), 1U);
  if (found.empty() || !found[0].whole_after) return {};
  EXPECT_LT(*found[0].whole_after, plan.update_begin);
  return plan.calls[*found[0].whole_after].op;
}

TEST(Collectives, BeginWhenTheGradientIsWhole) {
  EXPECT_EQ(begins_after(R"(graph "g" {
  input data "x" %0: f32[64,64]
  state parameter "w" %1: f32[64,64] update %5
  %2 = matmul(%0, %0) : f32[64,64]
  %3 = cumsum(%0) {dim = 1} : f32[64,64]
  update %4 = all_reduce(%2) : f32[64,64]
  update %5 = sub(%1, %4) : f32[64,64]
  output "y" %3
}
)"),
            "matmul");
}

TEST(Collectives, WaitForTheLastReaderOfTheGradient) {
  EXPECT_EQ(begins_after(R"(graph "g" {
  input data "x" %0: f32[64,64]
  state parameter "w" %1: f32[64,64] update %5
  %2 = matmul(%0, %0) : f32[64,64]
  %3 = cumsum(%2) {dim = 1} : f32[64,64]
  update %4 = all_reduce(%2) : f32[64,64]
  update %5 = sub(%1, %4) : f32[64,64]
  output "y" %3
}
)"),
            "cumsum");
}

TEST(Collectives, DoNotTouchWhatTheUserIsGiven) {
  EXPECT_EQ(begins_after(R"(graph "g" {
  input data "x" %0: f32[64,64]
  state parameter "w" %1: f32[64,64] update %5
  %2 = matmul(%0, %0) : f32[64,64]
  update %4 = all_reduce(%2) : f32[64,64]
  update %5 = sub(%1, %4) : f32[64,64]
  output "gradient" %2
}
)"),
            std::nullopt);
}

TEST(Collectives, AccumulatorsHoldTheirSums) {
  EXPECT_NE(begins_after(R"(graph "g" {
  input data "x" %0: f32[64,64]
  state parameter "w" %1: f32[64,64] update %5
  state accumulator "sum" %2: f32[64,64] micro_batch %3 update %6
  %3 = add(%2, %0) : f32[64,64]
  update %4 = all_reduce(%3) : f32[64,64]
  update %5 = sub(%1, %4) : f32[64,64]
  update %6 = fill() {dtype = f32, shape = [64,64], value = 0.0} : f32[64,64]
}
)"),
            std::nullopt);
}

// Two weights with one gradient: in place, the second would get the sum of sums.
TEST(Collectives, DoNotAddUpAValueTwiceInItsPlace) {
  EXPECT_EQ(begins_after(R"(graph "g" {
  input data "x" %0: f32[64,64]
  state parameter "w" %1: f32[64,64] update %6
  state parameter "v" %2: f32[64,64] update %7
  %3 = matmul(%0, %0) : f32[64,64]
  update %4, %5 = all_reduce(%3, %3) : f32[64,64], f32[64,64]
  update %6 = sub(%1, %4) : f32[64,64]
  update %7 = sub(%2, %5) : f32[64,64]
}
)"),
            std::nullopt);
}

// A weight is every replica's: sums are not written into it.
TEST(Collectives, DoNotTouchWeights) {
  EXPECT_EQ(begins_after(R"(graph "g" {
  input data "x" %0: f32[3]
  state parameter "w" %1: f32[3] update %4
  %2 = add(%0, %1) : f32[3]
  update %3 = all_reduce(%1) : f32[3]
  update %4 = add(%3, %3) : f32[3]
  output "y" %2
}
)"),
            std::nullopt);
}

}  // namespace
}  // namespace tessera::cpu
