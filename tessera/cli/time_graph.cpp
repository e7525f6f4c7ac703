#include "tessera/cli/time_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "tessera/backend/cpu/timeline.h"
#include "tessera/backend/cpu/why_slow.h"
#include "tessera/cli/trial.h"
#include "tessera/runtime/compile.h"
#include "tessera/runtime/trace_file.h"

namespace tessera {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct HostTime {
  int64_t nodes = 0;
  double seconds = 0;
};

std::string host_times(const Session& session, int64_t runs) {
  std::map<std::string, HostTime> times;
  for (const cpu::HostCallTime& time : session.host_calls()) {
    HostTime& total = times[time.call->kernel];
    ++total.nodes;
    total.seconds += static_cast<double>(time.nanoseconds) * 1e-9;
  }
  if (times.empty()) return "everything is native\n";
  std::string text = "not native, run by PyTorch's own kernels:\n";
  for (const auto& [overload, time] : times) {
    text += fmt::format("  {:<40}{:>4} nodes {:>10.3f} ms a step\n", overload, time.nodes,
                        time.seconds / static_cast<double>(runs) * 1e3);
  }
  return text;
}

}  // namespace

std::string time_graph(Graph graph, int64_t runs, int threads, bool by_call) {
  Trial trial(std::move(graph), runs, threads);
  trial.step();  // the first one fills caches
  std::vector<double> seconds;
  for (int64_t run = 0; run < runs; ++run) {
    const auto start = std::chrono::steady_clock::now();
    trial.step();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    seconds.push_back(taken.count());
  }
  std::string text = fmt::format("{:.3f} ms a step (median of {} runs, {} thread{})\n{}",
                                 median(std::move(seconds)) * 1e3, runs, threads,
                                 threads == 1 ? "" : "s", host_times(trial.session(), runs + 1));
  if (!by_call) return text;
  cpu::Timeline timeline(trial.plan(), threads, runs);
  trial.session().record(&timeline);
  for (int64_t run = 0; run < runs; ++run) trial.step();
  trial.session().record(nullptr);
  return text + timeline.to_table();
}

std::string trace_graph(Graph graph, const std::string& path, int64_t steps, int threads) {
  Trial trial(std::move(graph), steps, threads);
  trial.step();
  cpu::Timeline timeline(trial.plan(), threads, steps);
  trial.session().record(&timeline);
  for (int64_t step = 0; step < steps; ++step) trial.step();
  trial.session().record(nullptr);
  write_trace(path, timeline);
  return fmt::format("wrote {} steps to {}; open it in ui.perfetto.dev\n", steps, path);
}

std::string check_graph(Graph graph, int64_t steps, int threads) {
  Trial trial(std::move(graph), steps, threads);
  trial.session().check_calls(true);
  for (int64_t step = 0; step < steps; ++step) trial.step();
  return fmt::format("{} calls agree with the reference kernels, {} step{}\n",
                     trial.plan().calls.size(), steps, steps == 1 ? "" : "s");
}

std::string why_slow(Graph graph) { return cpu::why_slow(compile(std::move(graph))->plan()); }

}  // namespace tessera
