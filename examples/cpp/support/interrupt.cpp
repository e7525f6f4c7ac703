#include "examples/cpp/support/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string_view>

namespace tessera_examples {
namespace {

// On a terminal the cursor may stand above two progress bars.
constexpr std::string_view words_on_terminal = "\n\nInterrupted.\n";
constexpr std::string_view words_in_log = "Interrupted.\n";

std::atomic<bool> writing = false;
std::atomic<int> waiting_signal = 0;

// Called by signal handlers: only async-signal-safe functions.
void end_by(int signal) {
  const std::string_view words = isatty(STDERR_FILENO) ? words_on_terminal : words_in_log;
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, words.data(), words.size());
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void handle(int signal) {
  if (writing) {
    waiting_signal = signal;
  } else {
    end_by(signal);
  }
}

struct WritingScope {
  WritingScope() { writing = true; }
  ~WritingScope() {
    writing = false;
    if (waiting_signal != 0) end_by(waiting_signal);
  }
};

}  // namespace

void end_on_interrupt() {
  std::signal(SIGINT, handle);
  std::signal(SIGTERM, handle);
}

void write_uninterrupted(const std::function<void()>& write) {
  const WritingScope scope;
  write();
}

}  // namespace tessera_examples
