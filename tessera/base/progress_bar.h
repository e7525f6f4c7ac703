// Progress bars on stderr in the form tqdm made familiar:
//   epochs:  40%|████      | 2/5 [00:12<00:18,  6.10s/it]
// On a terminal a bar redraws its own line, at most about ten times a second; elsewhere (a log, a
// pipe) only whole lines are written, and few of them. advance() is cheap enough for the innermost
// loop: it looks at the clock only every so many calls. A bar belongs to one thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace tessera {

// What one line of a bar shows.
struct ProgressState {
  std::string description = {};
  int64_t done = 0;
  int64_t total = 0;  // 0, or less than done: unknown, then no bar is drawn
  double elapsed_seconds = 0;
  double rate = 0;  // units per second; 0: done / elapsed_seconds
  bool show_rate = true;
  std::string unit = "it";
  std::string postfix = {};  // such as "loss=0.512"
};

std::string format_progress(const ProgressState& state);

struct ProgressOptions {
  bool leave = true;  // false: erase the bar when it finishes; then nothing reaches a log
  int level = 0;      // how many lines below the cursor it stands: 1 for a loop in a loop
  bool show_rate = true;
  std::string unit = "it";
  std::FILE* stream = stderr;
  std::optional<bool> terminal = {};   // unset: asks the stream and $TERM
  std::function<double()> clock = {};  // seconds; unset: the steady clock
};

class ProgressBar {
 public:
  ProgressBar(std::string description, int64_t total, ProgressOptions options = {});
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();  // finishes, so an exception leaves the terminal tidy

  void advance(int64_t count = 1) {
    state_.done += count;
    if (++calls_since_check_ >= calls_per_check_) check_clock();
  }

  // Shown from the next redraw on.
  void set_postfix(std::string postfix) { state_.postfix = std::move(postfix); }

  // Shows the final state, or erases the bar. Later calls do nothing.
  void finish();

 private:
  void check_clock();
  void redraw(double now);
  void print_milestone(double now);
  void write_at_level(const std::string& text, int level);

  ProgressState state_;
  ProgressOptions options_;
  bool terminal_;
  bool finished_ = false;
  double start_ = 0;
  double last_check_ = 0;
  double last_shown_ = 0;
  int64_t last_shown_done_ = 0;
  int64_t last_tenth_ = 0;
  double smooth_rate_ = 0;
  int calls_per_check_ = 1;
  int calls_since_check_ = 0;
};

}  // namespace tessera
