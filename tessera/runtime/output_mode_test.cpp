#include "tessera/runtime/output_mode.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera {
namespace {

// The micro-batch in each place, as 100 * iteration + 10 * step + replica; -1 where there is none.
std::vector<int64_t> places(OutputMode mode, int64_t period, const RunExtent& run) {
  std::vector<int64_t> places(static_cast<size_t>(outputs_kept(mode, period, run)), -1);
  for (int64_t i = 0; i < run.device_iterations; ++i) {
    for (int64_t s = 0; s < run.gradient_accumulation; ++s) {
      for (int64_t r = 0; r < run.replicas; ++r) {
        const auto slot = slot_of(mode, period, run, {i, s, r});
        if (slot) places.at(static_cast<size_t>(*slot)) = 100 * i + 10 * s + r;
      }
    }
  }
  return places;
}

using Places = std::vector<int64_t>;

// spec: 5 All
// spec: 5 EveryN
TEST(OutputMode, ReplicasComeWithinAccumulationSteps) {
  const RunExtent run{.device_iterations = 2, .gradient_accumulation = 2, .replicas = 2};
  EXPECT_EQ(places(OutputMode::all, 1, run), (Places{0, 1, 10, 11, 100, 101, 110, 111}));
  EXPECT_EQ(places(OutputMode::every_n, 2, run), (Places{100, 101, 110, 111}));
  EXPECT_EQ(places(OutputMode::final_value, 1, run), (Places{110, 111}));
  EXPECT_EQ(places(OutputMode::sum, 1, run), (Places{110, 111}));  // one place for each replica
}

TEST(OutputMode, OneReplicaHasItsMicroBatchesInOrder) {
  const RunExtent run{.device_iterations = 3, .gradient_accumulation = 2};
  EXPECT_EQ(places(OutputMode::all, 1, run), (Places{0, 10, 100, 110, 200, 210}));
  EXPECT_EQ(places(OutputMode::every_n, 2, run), (Places{100, 110}));
  EXPECT_EQ(places(OutputMode::final_value, 1, run), (Places{210}));
}

}  // namespace
}  // namespace tessera
