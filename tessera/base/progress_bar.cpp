#include "tessera/base/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace tessera {
namespace {

constexpr double redraw_seconds = 0.1;
constexpr double milestone_seconds = 5;
// Rarely enough to cost nothing, often enough that a loop which turns slow still redraws soon.
constexpr int max_calls_per_check = 256;

// "03:20", with hours only when there are some.
std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto whole = static_cast<int64_t>(seconds);
  const int64_t hours = whole / 3600;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, whole / 60 % 60, whole % 60);
  return fmt::format("{:02}:{:02}", whole / 60, whole % 60);
}

// Slow work reads better as time per unit.
std::string format_rate(double rate, const std::string& unit) {
  if (!(rate > 0)) return fmt::format("?{}/s", unit);
  if (rate < 1) return fmt::format("{:5.2f}s/{}", 1 / rate, unit);
  return fmt::format("{:5.2f}{}/s", rate, unit);
}

std::string format_bar(double part) {
  constexpr int cells = 10;
  constexpr std::array<std::string_view, 8> eighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int filled = static_cast<int>(part * cells * 8);
  const int full = filled / 8;
  const std::string_view rest = eighths[static_cast<size_t>(filled % 8)];
  std::string bar;
  for (int i = 0; i < full; ++i) bar += "█";
  bar += rest;
  bar.append(static_cast<size_t>(cells - full - (rest.empty() ? 0 : 1)), ' ');
  return bar;
}

bool is_terminal(std::FILE* stream) {
  const char* kind = std::getenv("TERM");
  // A dumb terminal cannot move the cursor up, which nested bars need.
  return isatty(fileno(stream)) && kind && std::string_view(kind) != "dumb";
}

// A line that wraps could not be redrawn, so it is cut where the terminal ends.
std::string cut_to_width(const std::string& text, std::FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return text;
  size_t columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts_character = (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
    if (starts_character && columns++ == size.ws_col - 1U) return text.substr(0, i);
  }
  return text;
}

// A stream that fails (a closed stderr) is no reason to stop the work that is being shown.
void write(const std::string& text, std::FILE* stream) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string format_progress(const ProgressState& state) {
  double rate = state.rate;
  if (!(rate > 0)) {
    rate = state.elapsed_seconds > 0 ? static_cast<double>(state.done) / state.elapsed_seconds : 0;
  }
  const std::string prefix = state.description.empty() ? "" : state.description + ": ";
  const std::string elapsed = format_duration(state.elapsed_seconds);
  std::string tail = state.show_rate ? ", " + format_rate(rate, state.unit) : "";
  if (!state.postfix.empty()) tail += ", " + state.postfix;

  if (state.total <= 0 || state.done > state.total) {
    return fmt::format("{}{}{} [{}{}]", prefix, state.done, state.unit, elapsed, tail);
  }
  const int64_t done = std::max<int64_t>(state.done, 0);
  const double part = static_cast<double>(done) / static_cast<double>(state.total);
  const std::string remaining =
      done == state.total ? "00:00"
      : rate > 0          ? format_duration(static_cast<double>(state.total - done) / rate)
                          : "?";
  return fmt::format("{}{:3.0f}%|{}| {}/{} [{}<{}{}]", prefix, 100 * part, format_bar(part), done,
                     state.total, elapsed, remaining, tail);
}

ProgressBar::ProgressBar(std::string description, int64_t total, ProgressOptions options)
    : options_(std::move(options)),
      terminal_(options_.terminal.value_or(is_terminal(options_.stream))) {
  if (!options_.clock) options_.clock = steady_seconds;
  state_.description = std::move(description);
  state_.total = total;
  state_.show_rate = options_.show_rate;
  state_.unit = options_.unit;
  start_ = last_check_ = last_shown_ = options_.clock();
  if (terminal_) write_at_level(format_progress(state_), options_.level);
}

ProgressBar::~ProgressBar() {
  try {
    finish();
  } catch (...) {  // out of memory for a line of text: the bar is not worth a crash
  }
}

void ProgressBar::check_clock() {
  calls_since_check_ = 0;
  if (finished_) return;
  const double now = options_.clock();
  const double gap = now - last_check_;
  last_check_ = now;
  if (gap < redraw_seconds / 100) {
    calls_per_check_ = std::min(2 * calls_per_check_, max_calls_per_check);
  } else if (gap > redraw_seconds / 10) {
    calls_per_check_ = std::max(calls_per_check_ / 8, 1);
  }
  if (terminal_) {
    if (now - last_shown_ >= redraw_seconds) redraw(now);
  } else if (options_.leave) {
    print_milestone(now);
  }
}

void ProgressBar::redraw(double now) {
  // Recent speed counts more than old speed, but not so much that the numbers jump.
  const double recent = static_cast<double>(state_.done - last_shown_done_) / (now - last_shown_);
  smooth_rate_ = smooth_rate_ > 0 ? 0.3 * recent + 0.7 * smooth_rate_ : recent;
  last_shown_ = now;
  last_shown_done_ = state_.done;
  state_.elapsed_seconds = now - start_;
  state_.rate = smooth_rate_;
  write_at_level(format_progress(state_), options_.level);
}

// In a log: a line when another tenth is done, but no more than one every few seconds.
void ProgressBar::print_milestone(double now) {
  if (state_.total <= 0 || state_.done >= state_.total) return;
  const auto tenth = static_cast<int64_t>(10 * static_cast<double>(state_.done) /
                                          static_cast<double>(state_.total));
  if (tenth == last_tenth_ || now - last_shown_ < milestone_seconds) return;
  last_tenth_ = tenth;
  last_shown_ = now;
  state_.elapsed_seconds = now - start_;
  write(format_progress(state_) + "\n", options_.stream);
}

void ProgressBar::finish() {
  if (finished_) return;
  finished_ = true;
  state_.elapsed_seconds = options_.clock() - start_;
  state_.rate = 0;  // at the end the average tells more than the last speed
  if (!terminal_) {
    if (options_.leave) write(format_progress(state_) + "\n", options_.stream);
  } else if (options_.leave) {
    // A bar that stays takes the line of the cursor; those still running go on below it.
    if (options_.level > 0) write_at_level("", options_.level);
    write_at_level(format_progress(state_), 0);
    write("\n", options_.stream);
  } else {
    write_at_level("", options_.level);
    write("\r", options_.stream);
  }
}

void ProgressBar::write_at_level(const std::string& text, int level) {
  std::string out(static_cast<size_t>(std::max(level, 0)), '\n');
  out += '\r';
  out += cut_to_width(text, options_.stream);
  out += "\x1b[K";
  for (int i = 0; i < level; ++i) out += "\x1b[A";
  write(out, options_.stream);
}

}  // namespace tessera
