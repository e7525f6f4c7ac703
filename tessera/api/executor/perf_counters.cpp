#include "tessera/api/executor/perf_counters.h"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace tessera {
namespace {

// What turns a time of the steady clock into one of the wall clock: the same for the whole process,
// so that differences are those of the steady clock.
int64_t wall_clock_offset() {
  using std::chrono::nanoseconds;
  static const int64_t offset =
      nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count() -
      nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  return offset;
}

double seconds(int64_t steady_nanoseconds) {
  return static_cast<double>(steady_nanoseconds + wall_clock_offset()) * 1e-9;
}

// Over tensors: the earliest or latest time for each value.
template <typename Choose>
std::vector<double> over_tensors(const PerfCounters::Times& times, const Choose& choose) {
  if (times.empty()) return {};
  std::vector<double> chosen = times.front();
  for (const auto& tensor : times) {
    for (size_t i = 0; i < std::min(chosen.size(), tensor.size()); ++i) {
      chosen[i] = choose(chosen[i], tensor[i]);
    }
  }
  return chosen;
}

std::vector<double> first(const PerfCounters::Times& times) {
  return over_tensors(times, [](double a, double b) { return std::min(a, b); });
}

std::vector<double> last(const PerfCounters::Times& times) {
  return over_tensors(times, [](double a, double b) { return std::max(a, b); });
}

// Where there are fewer ends than starts, an end belongs to a group of starts, and with it to the
// earliest of them.
Latency between(const std::vector<double>& starts, const std::vector<double>& ends) {
  if (starts.empty() || ends.empty() || starts.size() < ends.size()) return {};
  const size_t group = starts.size() / ends.size();
  std::vector<double> taken;
  for (size_t i = 0; i < ends.size(); ++i) {
    const auto begin = starts.begin() + static_cast<std::ptrdiff_t>(i * group);
    taken.push_back(ends[i] - *std::min_element(begin, begin + static_cast<std::ptrdiff_t>(group)));
  }
  const auto [shortest, longest] = std::minmax_element(taken.begin(), taken.end());
  const double sum = std::accumulate(taken.begin(), taken.end(), 0.0);
  // Rounding must not put the mean outside.
  const double mean = std::clamp(sum / static_cast<double>(taken.size()), *shortest, *longest);
  return {*shortest, *longest, mean};
}

}  // namespace

std::vector<size_t> micro_batches_kept(const RequestedOutput& output, const RunExtent& extent) {
  // Where they are added up, the sum is there with the last.
  const OutputMode mode = output.mode == OutputMode::sum ? OutputMode::final_value : output.mode;
  std::vector<size_t> kept;
  for (int64_t i = 0; i < extent.of_a_replica() * extent.replicas; ++i) {
    const int64_t of_replica = i / extent.replicas;
    const MicroBatch at{of_replica / extent.gradient_accumulation,
                        of_replica % extent.gradient_accumulation, i % extent.replicas};
    if (slot_of(mode, output.period, extent, at)) kept.push_back(static_cast<size_t>(i));
  }
  return kept;
}

PerfCounters perf_counters(std::span<const MicroBatchTimes> times, size_t inputs,
                           std::span<const std::vector<size_t>> kept_per_output) {
  std::vector<double> requested, read;
  for (const MicroBatchTimes& time : times) {
    requested.push_back(seconds(time.inputs_requested));
    read.push_back(seconds(time.inputs_read));
  }
  PerfCounters counters;
  counters.input.assign(inputs, requested);
  counters.input_complete.assign(inputs, read);
  counters.output.assign(kept_per_output.size(), {});
  counters.output_complete = counters.output;
  if (times.empty()) return counters;
  for (size_t i = 0; i < kept_per_output.size(); ++i) {
    for (const size_t micro_batch : kept_per_output[i]) {
      counters.output[i].push_back(seconds(times[micro_batch].outputs_ready));
      counters.output_complete[i].push_back(seconds(times[micro_batch].outputs_written));
    }
  }
  return counters;
}

Latency latency(const PerfCounters& counters) {
  return between(first(counters.input), last(counters.output_complete));
}

Latency host_ipu_latency(const PerfCounters& counters) {
  return between(first(counters.input), last(counters.input_complete));
}

Latency compute_latency(const PerfCounters& counters) {
  return between(last(counters.input_complete), last(counters.output));
}

Latency ipu_host_latency(const PerfCounters& counters) {
  return between(first(counters.output), last(counters.output_complete));
}

}  // namespace tessera
