#include "tessera/launch/process_guard.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace tessera {
namespace {

// Of whoever ends the group of the supervisor it is no member, and it keeps no file open that
// others wait for the end of.
[[noreturn]] void watch(int alive, pid_t group) {
  setsid();
  dup2(alive, STDIN_FILENO);
  close_range(STDOUT_FILENO, ~0U, 0);
  char dismissed = 0;
  if (read(STDIN_FILENO, &dismissed, 1) == 0) kill(-group, SIGKILL);
  _exit(0);
}

}  // namespace

ProcessGuard::ProcessGuard(pid_t group) : guard_(fork()) {
  if (guard_ == 0) {
    alive_.close_writer();
    watch(alive_.reader(), group);
  }
  alive_.close_reader();
}

ProcessGuard::~ProcessGuard() {
  if (guard_ < 0) return;
  write_all(alive_.writer(), "x");
  waitpid(guard_, nullptr, 0);
}

}  // namespace tessera
