#include "tessera/cli/time_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "tessera/base/error.h"
#include "tessera/runtime/compile.h"
#include "tessera/runtime/session.h"

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

}  // namespace

std::string time_graph(Graph graph, int64_t runs, int threads) {
  check(runs >= 1, ErrorKind::value, "at least one run is needed, not {}", runs);
  check(threads >= 1, ErrorKind::value, "at least one thread is needed, not {}", threads);
  const auto executable = compile(std::move(graph));
  Session session(executable, threads);
  uint64_t key = 0;
  for (size_t i = 0; i < executable->states().size(); ++i) {
    session.write_state(i, made_up(executable->states()[i].type, ++key));
  }
  std::vector<Bytes> inputs, outputs;
  RunRequest request;
  for (const NamedType& input : executable->data_inputs()) {
    inputs.push_back(made_up(input.type, ++key));
    request.inputs.push_back(inputs.back().data());
  }
  for (const NamedType& output : executable->outputs()) {
    outputs.emplace_back(static_cast<size_t>(bytes(output.type)));
    request.outputs.push_back({outputs.back().data(), OutputMode::final_value, 1});
  }
  std::vector<double> seconds;
  for (int64_t run = 0; run <= runs; ++run) {
    const auto start = std::chrono::steady_clock::now();
    session.run(request);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (run > 0) seconds.push_back(taken.count());  // the first one warms up
  }
  return fmt::format("{:.3f} ms a step (median of {} runs, {} thread{})\n{}",
                     median(std::move(seconds)) * 1e3, runs, threads, threads == 1 ? "" : "s",
                     host_times(session, runs + 1));
}

}  // namespace tessera
