#include "tessera/backend/cpu/shared_memory.h"

#include <gtest/gtest.h>

#include "tessera/backend/cpu/lower/lower.h"
#include "tessera/passes/read_graph.h"

namespace tessera::cpu {
namespace {

// An accumulator, a momentum that goes with it, a buffer that micro-batches change, and a weight
// that nothing changes.
constexpr std::string_view step = R"(graph "step" {
  input data "x" %0: f32[64]
  state parameter "w" %1: f32[64] update %9
  state accumulator "sum" %2: f32[64] micro_batch %6 update %10
  state optimizer "momentum" %3: f32[64] update %8
  state buffer "seen" %4: f32[64] micro_batch %5
  %5 = add(%4, %0) : f32[64]
  %6 = add(%2, %0) : f32[64]
  update %7 = all_reduce(%6) : f32[64]
  update %8 = add(%3, %7) : f32[64]
  update %9 = sub(%1, %8) : f32[64]
  update %10 = fill() {dtype = f32, shape = [64], value = 0.0} : f32[64]
  output "y" %5
}
)";

constexpr int64_t bytes = 64 * sizeof(float);

TEST(SharedMemory, AProgramAloneHasAllOfIt) {
  const Plan plan = lower(read_graph(step));
  const SharedMemory shared(plan);
  EXPECT_EQ(shared.own_state_bytes(), 0);
  for (size_t i = 0; i < 4; ++i) EXPECT_FALSE(shared.is_own(i)) << i;
  for (size_t i = 0; i < plan.calls.size(); ++i) EXPECT_TRUE(shared.runs_everywhere(i)) << i;
  EXPECT_EQ(shared.bytes(), 4 * bytes + plan.memory.constant_bytes);
}

TEST(SharedMemory, WeightsAndWhatOptimisersRememberAreThereOnce) {
  const Plan plan = lower(read_graph(step));
  const SharedMemory shared(plan, 4);
  EXPECT_FALSE(shared.is_own(0));
  EXPECT_TRUE(shared.is_own(1));
  EXPECT_FALSE(shared.is_own(2));
  EXPECT_TRUE(shared.is_own(3));
  EXPECT_EQ(shared.own_state_bytes(), 2 * bytes);
  EXPECT_EQ(shared.bytes(), 2 * bytes + plan.memory.constant_bytes);
  // The update itself runs once; what empties an accumulator, and the collective, everywhere.
  for (size_t i = plan.update_begin; i < plan.calls.size(); ++i) {
    const Place& result = plan.calls[i].outputs[0];
    const Buffer& buffer = plan.buffer(result.buffer);
    const bool of_weight = buffer.space == Space::state && buffer.index % 2 == 0;
    EXPECT_EQ(shared.runs_everywhere(i), !of_weight) << plan.calls[i].op;
  }
}

// Where replicas differ in a weight, they differ in what is computed with it.
TEST(SharedMemory, WhatFollowsFromADifferenceIsOwnToo) {
  const Plan plan = lower(read_graph(step));
  const SharedMemory shared(plan, 4, {0});
  EXPECT_TRUE(shared.is_own(0));
  EXPECT_TRUE(shared.is_own(2));
  EXPECT_EQ(shared.own_state_bytes(), 4 * bytes);
  for (size_t i = 0; i < plan.calls.size(); ++i) EXPECT_TRUE(shared.runs_everywhere(i)) << i;
}

}  // namespace
}  // namespace tessera::cpu
