#include "tessera/launch/signal_queue.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include "tessera/base/error.h"

namespace tessera {

SignalQueue::SignalQueue(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, &before_);
  file_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  check(file_ >= 0, "cannot wait for signals");
}

SignalQueue::~SignalQueue() {
  close(file_);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<SignalQueue::Received> SignalQueue::next() {
  signalfd_siginfo info;
  if (read(file_, &info, sizeof info) != sizeof info) return std::nullopt;
  return Received{static_cast<int>(info.ssi_signo), info.ssi_code == SI_KERNEL};
}

void unblock_all_signals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace tessera
