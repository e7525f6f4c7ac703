// When each call of a plan ran, and which threads worked on it: recorded while an engine runs,
// shown as a table or as a file for ui.perfetto.dev. Recording takes memory that is set aside
// beforehand; what no longer fits is left out.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/backend/cpu/plan.h"
#include "tessera/base/thread_pool.h"

namespace tessera::cpu {

class Timeline : public PoolObserver {
 public:
  using Clock = std::chrono::steady_clock;

  // For about `steps` steps of the plan on that many threads.
  Timeline(const Plan& plan, int threads, int64_t steps);

  // The calling thread begins and ends a call of the plan.
  void begin_call(size_t call);
  void end_call();
  void worked(int thread, Clock::time_point begin, Clock::time_point end) override;

  bool full() const { return calls_.size() == calls_.capacity(); }

  // For ui.perfetto.dev or chrome://tracing: a track for each thread, calls with their kernel,
  // their module and where the user wrote them.
  std::string to_json() const;

  // Where a step's time goes, by operator and kernel, the longest first.
  std::string to_table() const;

 private:
  struct Span {
    size_t call = 0;
    Clock::time_point begin, end;
  };

  const Plan& plan_;
  std::atomic<size_t> current_{0};
  Clock::time_point call_begin_;
  std::vector<Span> calls_;
  std::vector<std::vector<Span>> workers_;  // by thread, from 1 on
};

}  // namespace tessera::cpu
