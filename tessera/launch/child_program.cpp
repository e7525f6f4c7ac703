#include "tessera/launch/child_program.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/launch/exec_program.h"
#include "tessera/launch/signal_queue.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;

// Some tidy up after the program has ended, as the trackers of Python's shared memory do.
constexpr auto time_for_leftovers = 1s;

}  // namespace

// At a terminal it stays in our group, which is the one that may read from it.
ChildProgram::ChildProgram(const std::vector<std::string>& words, int output, int errors)
    : has_own_group_(isatty(STDIN_FILENO) == 0) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphans come to us, so that we see when all are gone
  FilePipe failure;
  const pid_t parent = getpid();
  child_ = fork();
  check(child_ >= 0, "cannot start a process: {}", std::strerror(errno));
  if (child_ == 0) become(words, output, errors, parent, failure);
  if (has_own_group_) {
    setpgid(child_, child_);
    guard_.emplace(child_);
  }
  failure.close_writer();
  if (read(failure.reader(), &start_error_, sizeof start_error_) <= 0) start_error_ = 0;
}

void ChildProgram::become(const std::vector<std::string>& words, int output, int errors,
                          pid_t parent, FilePipe& failure) const {
  if (has_own_group_) setpgid(0, 0);
  // Where we are killed, so is the program; a parent that is gone already cannot tell.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  if (output >= 0) dup2(output, STDOUT_FILENO);
  if (errors >= 0) dup2(errors, STDERR_FILENO);
  std::signal(SIGPIPE, SIG_DFL);  // we ignore it, and programs do as we do
  unblock_all_signals();
  const int error = exec_program(words);
  write_all(failure.writer(), {reinterpret_cast<const char*>(&error), sizeof error});
  _exit(1);
}

void ChildProgram::send(int signal) const {
  if (!is_over_) kill(has_own_group_ ? -child_ : child_, signal);
}

std::optional<int> ChildProgram::status() {
  int status = 0;
  for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (ended == child_) status_ = status;
  }
  return status_;
}

void ChildProgram::end_leftovers() {
  if (has_own_group_) {
    send(SIGTERM);
    const auto deadline = std::chrono::steady_clock::now() + time_for_leftovers;
    while (kill(-child_, 0) == 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(10ms);
      status();
    }
    send(SIGKILL);
  }
  is_over_ = true;
  guard_.reset();
}

}  // namespace tessera
