#include "tessera/launch/mpirun_messages.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tessera {
namespace {

constexpr size_t most_kept = 16384;  // of all lines

bool is_rule(std::string_view line) {
  return line.size() >= 40 &&
         std::all_of(line.begin(), line.end(), [](char c) { return c == '-'; });
}

// Each says that a process ended, and that the others do so too.
constexpr std::array about_the_end = {
    "Primary job  terminated normally, but",
    "detected that one or more processes exited with non-zero status",
    "noticed that process rank",
    "There are three reasons this could occur",
    "was terminated abnormally",
};

// Each is about a host that mpirun has no connection to, which poprun names in the end.
constexpr std::array about_hosts = {
    "was unable to reliably start one or more daemons",
    "does not know how to route a message to the specified daemon",
    "lost communication with a remote daemon",
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

template <typename Texts>
bool contains_any(std::string_view text, const Texts& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return contains(text, part); });
}

bool is_blank(std::string_view line) {
  for (const char c : line) {
    if (c > ' ') return false;
  }
  return true;
}

}  // namespace

std::vector<std::string> MpirunMessages::add(const std::string& line) {
  if (all_.size() < most_kept) all_ += line + "\n";
  if (everything_) return {line};
  if (is_rule(line) || !banner_.empty()) {
    const bool is_end = is_rule(line) && !banner_.empty();
    banner_.push_back(line);
    return is_end ? finish() : std::vector<std::string>{};
  }
  const bool is_noise = is_blank(line) || contains(line, "Forwarding signal") ||
                        contains(line, "plm:ssh: Warning: setpgid");
  return is_noise ? std::vector<std::string>{} : std::vector<std::string>{line};
}

std::vector<std::string> MpirunMessages::finish() {
  std::string text;
  for (const std::string& line : banner_) text += line + "\n";
  const bool is_known =
      contains_any(text, about_hosts) || (is_ending_ && contains_any(text, about_the_end));
  std::vector<std::string> lines = std::exchange(banner_, {});
  return is_known ? std::vector<std::string>{} : lines;
}

}  // namespace tessera
