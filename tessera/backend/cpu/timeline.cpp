#include "tessera/backend/cpu/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "tessera/base/json_text.h"

namespace tessera::cpu {
namespace {

double microseconds(Timeline::Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

std::string shape_of(const Call& call) {
  if (call.outputs.empty()) return "";
  return to_string({call.outputs[0].dtype, call.outputs[0].geometry.shape});
}

}  // namespace

Timeline::Timeline(const Plan& plan, int threads, int64_t steps)
    : plan_(plan), workers_(static_cast<size_t>(threads)) {
  const size_t room = plan.calls.size() * static_cast<size_t>(steps);
  calls_.reserve(room);
  // A call may be several jobs of the pool.
  for (auto& worker : workers_) worker.reserve(4 * room);
}

void Timeline::begin_call(size_t call) {
  current_.store(call, std::memory_order_relaxed);
  call_begin_ = Clock::now();
}

void Timeline::end_call() {
  if (full()) return;
  calls_.push_back({current_.load(std::memory_order_relaxed), call_begin_, Clock::now()});
}

void Timeline::worked(int thread, Clock::time_point begin, Clock::time_point end) {
  std::vector<Span>& spans = workers_[static_cast<size_t>(thread)];
  if (spans.size() == spans.capacity()) return;
  spans.push_back({current_.load(std::memory_order_relaxed), begin, end});
}

std::string Timeline::to_json() const {
  std::string out = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  fmt::format_to(std::back_inserter(out),
                 R"({{"name": "process_name", "ph": "M", "pid": 1, "args": {{"name": {}}}}})",
                 json_string("tessera: " + plan_.name));
  const Clock::time_point start = calls_.empty() ? Clock::time_point() : calls_.front().begin;
  const auto add = [&](const Span& span, size_t thread) {
    const Call& call = plan_.calls[span.call];
    fmt::format_to(
        std::back_inserter(out),
        ",\n"
        R"({{"name": {}, "cat": {}, "ph": "X", "pid": 1, "tid": {}, "ts": {:.3f}, "dur": {:.3f}, )"
        R"("args": {{"call": {}, "kernel": {}, "result": {}, "from": {}}}}})",
        json_string(call.op), json_string(call.kernel), thread, microseconds(span.begin - start),
        microseconds(span.end - span.begin), span.call, json_string(call.kernel),
        json_string(shape_of(call)), json_string(call.origin));
  };
  for (size_t thread = 0; thread < workers_.size(); ++thread) {
    fmt::format_to(std::back_inserter(out),
                   ",\n"
                   R"({{"name": "thread_name", "ph": "M", "pid": 1, "tid": {}, "args": )"
                   R"({{"name": {}}}}})",
                   thread, json_string(thread == 0 ? "caller" : fmt::format("worker {}", thread)));
    for (const Span& span : thread == 0 ? calls_ : workers_[thread]) add(span, thread);
  }
  return out + "\n]}\n";
}

std::string Timeline::to_table() const {
  struct Line {
    int64_t calls = 0;
    double microseconds = 0;
  };
  std::map<std::pair<std::string, std::string>, Line> lines;
  std::vector<int64_t> runs(plan_.calls.size());
  double total = 0;
  for (const Span& span : calls_) {
    const Call& call = plan_.calls[span.call];
    Line& line = lines[{call.op, call.kernel}];
    if (runs[span.call]++ == 0) ++line.calls;
    line.microseconds += cpu::microseconds(span.end - span.begin);
    total += cpu::microseconds(span.end - span.begin);
  }
  const auto most = std::max_element(runs.begin(), runs.end());
  const auto steps = static_cast<double>(most == runs.end() || *most == 0 ? 1 : *most);
  std::vector<std::pair<std::pair<std::string, std::string>, Line>> sorted(lines.begin(),
                                                                           lines.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second.microseconds > b.second.microseconds;
  });
  std::string out = fmt::format("{:<34}{:<30}{:>6}{:>12}{:>8}\n", "operator", "kernel", "calls",
                                "us a step", "share");
  for (const auto& [names, line] : sorted) {
    fmt::format_to(std::back_inserter(out), "{:<34}{:<30}{:>6}{:>12.1f}{:>7.1f}%\n", names.first,
                   names.second, line.calls, line.microseconds / steps,
                   100 * line.microseconds / total);
  }
  return out;
}

}  // namespace tessera::cpu
