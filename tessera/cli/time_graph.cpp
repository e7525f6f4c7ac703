#include "tessera/cli/time_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "tessera/backend/cpu/timeline.h"
#include "tessera/backend/cpu/why_slow.h"
#include "tessera/base/error.h"
#include "tessera/base/progress_bar.h"
#include "tessera/runtime/compile.h"
#include "tessera/runtime/session.h"
#include "tessera/runtime/trace_file.h"

namespace tessera {
namespace {

using Bytes = std::vector<std::byte>;

// Floats between 0 and 1; zeros are valid indices and flags.
Bytes made_up(const TensorType& type, uint64_t key) {
  Bytes memory(static_cast<size_t>(bytes(type)));
  if (type.dtype != DType::f32) return memory;
  auto* values = reinterpret_cast<float*>(memory.data());
  for (int64_t i = 0; i < numel(type.shape); ++i) {
    values[i] = uniform_from_word(random_words({}, key, static_cast<uint64_t>(i))[0]);
  }
  return memory;
}

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

std::shared_ptr<const Executable> compile_showing_progress(Graph graph) {
  ProgressBar bar("compiling", 100, {.leave = false, .show_rate = false});
  int shown = 0;
  return compile(std::move(graph), {.disabled_passes = {}, .progress = [&](int percent) {
                                      bar.advance(percent - std::exchange(shown, percent));
                                    }});
}

// A session on made-up values that has run once, and will again, in some rounds of `runs` steps.
class Trial {
 public:
  Trial(Graph graph, int64_t runs, int threads, int64_t rounds = 1)
      : executable_(compile_checked(std::move(graph), runs, threads)),
        session_(executable_, threads),
        bar_("running", 1 + rounds * runs, {.unit = "step"}) {
    uint64_t key = 0;
    for (size_t i = 0; i < executable_->states().size(); ++i) {
      session_.write_state(i, made_up(executable_->states()[i].type, ++key));
    }
    for (const NamedType& input : executable_->data_inputs()) {
      values_.push_back(made_up(input.type, ++key));
      request_.inputs.push_back(values_.back().data());
    }
    for (const NamedType& output : executable_->outputs()) {
      values_.emplace_back(static_cast<size_t>(bytes(output.type)));
      request_.outputs.push_back({values_.back().data(), OutputMode::final_value, 1});
    }
    step();
  }

  void step() {
    session_.run(request_);
    bar_.advance();
  }
  Session& session() { return session_; }
  const cpu::Plan& plan() const { return executable_->plan(); }

 private:
  static std::shared_ptr<const Executable> compile_checked(Graph graph, int64_t runs, int threads) {
    check(runs >= 1, ErrorKind::value, "at least one run is needed, not {}", runs);
    check(threads >= 1, ErrorKind::value, "at least one thread is needed, not {}", threads);
    return compile_showing_progress(std::move(graph));
  }

  std::shared_ptr<const Executable> executable_;
  Session session_;
  ProgressBar bar_;
  std::vector<Bytes> values_;
  RunRequest request_;
};

}  // namespace

std::string time_graph(Graph graph, int64_t runs, int threads, bool by_call) {
  Trial trial(std::move(graph), runs, threads, by_call ? 2 : 1);
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
  cpu::Timeline timeline(trial.plan(), threads, steps);
  trial.session().record(&timeline);
  for (int64_t step = 0; step < steps; ++step) trial.step();
  trial.session().record(nullptr);
  write_trace(path, timeline);
  return fmt::format("wrote {} steps to {}; open it in ui.perfetto.dev\n", steps, path);
}

std::string why_slow(Graph graph) {
  return cpu::why_slow(compile_showing_progress(std::move(graph))->plan());
}

}  // namespace tessera
