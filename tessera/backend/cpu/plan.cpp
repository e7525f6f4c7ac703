#include "tessera/backend/cpu/plan.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

namespace tessera::cpu {
namespace {

std::string text_of(const Plan& plan, const Place& place) {
  if (!place.buffer.valid()) return "-";
  const Buffer& buffer = plan.buffer(place.buffer);
  const char* initial = "";
  switch (buffer.space) {
    case Space::arena:
      initial = "b";
      break;
    case Space::state:
      initial = "state";
      break;
    case Space::data:
      initial = "data";
      break;
    case Space::hyperparameter:
      initial = "hyper";
      break;
    case Space::constant:
      initial = "const";
      break;
  }
  const int64_t number = buffer.space == Space::arena ? int64_t{place.buffer.index} : buffer.index;
  std::string text =
      fmt::format("{}{}:{}", initial, number, to_string({place.dtype, place.geometry.shape}));
  if (!same_elements(place.geometry, dense(place.geometry.shape))) {
    text += fmt::format("{{{}+{}}}", to_string(place.geometry.strides), place.geometry.offset);
  }
  return text;
}

std::string text_of(const Plan& plan, const std::vector<Place>& places) {
  std::string text;
  for (const Place& place : places) {
    if (!text.empty()) text += ", ";
    text += text_of(plan, place);
  }
  return text;
}

void print_calls(const Plan& plan, const std::vector<Call>& calls, size_t begin, size_t end,
                 std::string& out) {
  for (size_t i = begin; i < end; ++i) {
    const Call& call = calls[i];
    fmt::format_to(std::back_inserter(out), "  {:>4} {}: {}({}) -> {}", i, call.op, call.kernel,
                   text_of(plan, call.inputs), text_of(plan, call.outputs));
    if (call.workspace.valid()) {
      fmt::format_to(std::back_inserter(out), " workspace b{}", call.workspace.index);
    }
    if (!call.origin.empty()) fmt::format_to(std::back_inserter(out), "  # {}", call.origin);
    out += '\n';
  }
}

std::string readable(int64_t bytes) {
  if (bytes < 10 * 1024) return fmt::format("{} B", bytes);
  if (bytes < 10 * 1024 * 1024) return fmt::format("{:.1f} KB", static_cast<double>(bytes) / 1024);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / (1024 * 1024));
}

}  // namespace

std::string_view name_of(Space space) {
  static constexpr std::array<std::string_view, 5> names = {"arena", "state", "data",
                                                            "hyperparameter", "constant"};
  return names[static_cast<size_t>(space)];
}

std::string print(const MemoryReport& report) {
  return fmt::format("arena {} (at least {}, {} without reuse), states {}, constants {}",
                     readable(report.arena_bytes), readable(report.lower_bound_bytes),
                     readable(report.without_reuse_bytes), readable(report.state_bytes),
                     readable(report.constant_bytes));
}

std::string print(const Plan& plan) {
  std::string out = fmt::format("plan {}: {}\n", plan.name, print(plan.memory));
  fmt::format_to(std::back_inserter(out), "target: {}\n", print(plan.target));
  out += "arena:\n";
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& buffer = plan.buffers[i];
    if (buffer.space != Space::arena) continue;
    fmt::format_to(std::back_inserter(out), "  b{}: {} bytes at {}, calls {} to {}\n", i,
                   buffer.bytes, buffer.offset, buffer.first_call, buffer.last_call);
  }
  out += "load:\n";
  print_calls(plan, plan.load, 0, plan.load.size(), out);
  out += "micro_batch:\n";
  print_calls(plan, plan.calls, 0, plan.update_begin, out);
  fmt::format_to(std::back_inserter(out), "outputs: {}\n", text_of(plan, plan.outputs));
  out += "update:\n";
  print_calls(plan, plan.calls, plan.update_begin, plan.calls.size(), out);
  return out;
}

}  // namespace tessera::cpu
