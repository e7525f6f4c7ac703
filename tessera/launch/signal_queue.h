// Signals as events that are waited for like input, in place of handlers.
#pragma once

#include <csignal>
#include <initializer_list>
#include <optional>

namespace tessera {

class SignalQueue {
 public:
  // Blocks the signals and queues them.
  explicit SignalQueue(std::initializer_list<int> signals);
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  // Readable when a signal came.
  int file() const { return file_; }

  struct Received {
    int number;
    bool from_terminal;  // Ctrl-C: every process at that terminal got it
  };
  std::optional<Received> next();

 private:
  int file_;
  sigset_t before_;
};

// For the child that is to become another program: no signal is blocked.
void unblock_all_signals();

}  // namespace tessera
