#include "tessera/backend/cpu/why_slow.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <vector>

namespace tessera::cpu {
namespace {

// Smaller calls cost less than looking for a faster kernel is worth.
constexpr int64_t worth_naming = 64 * 1024;

enum class Reason : size_t { host, reference, conversion, copy, count };

constexpr std::array<std::string_view, static_cast<size_t>(Reason::count)> sentences = {
    "run by PyTorch's own kernel on one thread",
    "run by the plain reference kernel, not fused",
    "brings a tensor into another layout",
    "copies what strides cannot say",
};

struct Line {
  int64_t calls = 0, bytes = 0;
  std::string origin;  // of the largest
  int64_t largest = 0;
};

int64_t bytes_moved(const Call& call) {
  int64_t sum = 0;
  for (const auto* places : {&call.inputs, &call.outputs}) {
    for (const Place& place : *places) {
      if (place.buffer.valid()) sum += bytes({place.dtype, place.geometry.shape});
    }
  }
  return sum;
}

Reason reason_of(const Call& call) {
  if (call.host) return Reason::host;
  if (call.op == "convert") return Reason::conversion;
  if (call.op == "copy") return Reason::copy;
  return call.kernel == "reference" ? Reason::reference : Reason::count;
}

}  // namespace

std::string why_slow(const Plan& plan) {
  std::map<std::pair<Reason, std::string>, Line> lines;
  for (const Call& call : plan.calls) {
    const Reason reason = reason_of(call);
    const int64_t moved = bytes_moved(call);
    if (reason == Reason::count || (moved < worth_naming && reason != Reason::host)) continue;
    Line& line = lines[{reason, reason == Reason::host ? call.kernel : call.op}];
    ++line.calls;
    line.bytes += moved;
    if (moved < line.largest) continue;
    line.largest = moved;
    line.origin = call.origin;
  }
  if (lines.empty()) return "every large call has a fast kernel, and nothing is converted\n";
  std::vector<std::pair<std::pair<Reason, std::string>, Line>> sorted(lines.begin(), lines.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::string out;
  for (const auto& [name, line] : sorted) {
    fmt::format_to(std::back_inserter(out), "{:<34}{:>4} calls {:>10.2f} MB  {}{}{}\n", name.second,
                   line.calls, static_cast<double>(line.bytes) / (1 << 20),
                   sentences[static_cast<size_t>(name.first)],
                   line.origin.empty() ? "" : "; the largest: ", line.origin);
  }
  return out;
}

}  // namespace tessera::cpu
