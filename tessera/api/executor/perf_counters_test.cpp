#include "tessera/api/executor/perf_counters.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

constexpr int64_t second = 1'000'000'000;

// Micro-batch i asks at 10 i, has read at +1, computed at +5, written at +6 seconds.
std::vector<MicroBatchTimes> times(int64_t count) {
  std::vector<MicroBatchTimes> list;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t start = 10 * i;
    list.push_back(
        {start * second, (start + 1) * second, (start + 5) * second, (start + 6) * second});
  }
  return list;
}

// spec: 1.4 getPerfCounters
TEST(PerfCounters, OutputsHaveTimesOfTheMicroBatchesThatAreKept) {
  using Kept = std::vector<size_t>;
  const auto kept = [](OutputMode mode, int64_t period, int64_t replicas = 1) {
    return micro_batches_kept({nullptr, mode, period}, {4 / replicas, 2, replicas});
  };
  EXPECT_EQ(kept(OutputMode::all, 1), (Kept{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(kept(OutputMode::final_value, 1), (Kept{7}));
  EXPECT_EQ(kept(OutputMode::sum, 1), (Kept{7}));
  EXPECT_EQ(kept(OutputMode::every_n, 2), (Kept{2, 3, 6, 7}));
  EXPECT_EQ(kept(OutputMode::all, 1, 2), (Kept{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(kept(OutputMode::final_value, 1, 2), (Kept{6, 7}));
  EXPECT_EQ(kept(OutputMode::every_n, 2, 2), (Kept{4, 5, 6, 7}));

  const std::vector<Kept> outputs = {{7}};
  const PerfCounters counters = perf_counters(times(8), 2, outputs);
  ASSERT_EQ(counters.input.size(), 2U);
  EXPECT_EQ(counters.input[1].size(), 8U);
  EXPECT_EQ(counters.input_complete[0].size(), 8U);
  ASSERT_EQ(counters.output.size(), 1U);
  EXPECT_EQ(counters.output[0].size(), 1U);
  EXPECT_NEAR(counters.output_complete[0][0] - counters.input[0][0], 76, 1e-6);
}

void expect_near(const Latency& latency, double min, double max, double avg) {
  EXPECT_NEAR(latency.min, min, 1e-6);
  EXPECT_NEAR(latency.max, max, 1e-6);
  EXPECT_NEAR(latency.avg, avg, 1e-6);
}

// spec: 1.4 getLatency
// spec: 1.4 getHostIpuLatency
// spec: 1.4 getComputeLatency
// spec: 1.4 getIpuHostLatency
TEST(PerfCounters, LatenciesAreGroupedByOutputs) {
  const std::vector<std::vector<size_t>> all = {{0, 1, 2, 3}}, last = {{3}};
  const auto four = times(4);
  expect_near(latency(perf_counters(four, 1, all)), 6, 6, 6);
  expect_near(latency(perf_counters(four, 1, last)), 36, 36, 36);
  expect_near(host_ipu_latency(perf_counters(four, 1, last)), 1, 1, 1);
  expect_near(compute_latency(perf_counters(four, 1, last)), 34, 34, 34);
  expect_near(ipu_host_latency(perf_counters(four, 1, last)), 1, 1, 1);
  auto uneven = times(2);
  uneven[1].outputs_written += 2 * second;
  const std::vector<std::vector<size_t>> both = {{0, 1}};
  expect_near(latency(perf_counters(uneven, 1, both)), 6, 8, 7);
}

// spec: 1.4 getPerfCounters
TEST(PerfCounters, NothingMeasuredIsZero) {
  const std::vector<std::vector<size_t>> all = {{0, 1, 2, 3}};
  const PerfCounters counters = perf_counters({}, 2, all);
  EXPECT_EQ(counters.input, PerfCounters::Times(2));
  EXPECT_EQ(counters.output, PerfCounters::Times(1));
  EXPECT_EQ(latency(counters), Latency{});
  EXPECT_EQ(latency(PerfCounters{}), Latency{});
  EXPECT_EQ(PerfCounters{}.input, PerfCounters::Times(1));
}

}  // namespace
}  // namespace tessera
