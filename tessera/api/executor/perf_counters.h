// When inputs were read and outputs written in an executor's last call, and the latencies that
// follow from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/runtime/run_request.h"

namespace tessera {

// Seconds of the wall clock: per tensor, per value that was read or written.
struct PerfCounters {
  using Times = std::vector<std::vector<double>>;
  Times input = {{}}, input_complete = {{}}, output = {{}}, output_complete = {{}};
};

struct Latency {
  double min = 0, max = 0, avg = 0;  // seconds; all zero where nothing was measured

  bool operator==(const Latency&) const = default;
};

// Which of a call's micro-batches have a value of this output in the result.
std::vector<size_t> micro_batches_kept(const RequestedOutput& output, const RunExtent& extent);

// Of a call with so many inputs and these outputs; no times: nothing was read or written.
PerfCounters perf_counters(std::span<const MicroBatchTimes> times, size_t inputs,
                           std::span<const std::vector<size_t>> kept_per_output);

Latency latency(const PerfCounters& counters);  // first input asked for to last output there
Latency host_ipu_latency(const PerfCounters& counters);  // ... to last input read
Latency compute_latency(const PerfCounters& counters);   // last input read to last output computed
Latency ipu_host_latency(const PerfCounters& counters);  // first output computed to last one there

}  // namespace tessera
