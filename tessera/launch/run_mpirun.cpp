#include "tessera/launch/run_mpirun.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/launch/exec_program.h"
#include "tessera/launch/file_pipe.h"
#include "tessera/launch/job_output.h"
#include "tessera/launch/signal_queue.h"
#include "tessera/launch/supervisor.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// After the programs had their time, mpirun has this to end, and then once more.
constexpr auto time_for_mpirun = 3s;
// While mpirun is starting processes, it passes no signals on: the order is given until it is
// heard.
constexpr auto time_between_orders = 300ms;
// A line that is not over after that time is shown as it is.
constexpr auto time_for_line = 100ms;

// Forks; the child becomes the command, with these files as its stdout and stderr.
pid_t start(const std::vector<std::string>& command, int output, int errors, bool own_group) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  check(child >= 0, "cannot start a process: {}", std::strerror(errno));
  if (child > 0) return child;
  if (own_group) setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // where we are killed, the job ends
  if (getppid() != parent) _exit(1);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  unblock_all_signals();
  exec_program(command);
  _exit(127);
}

class MpirunJob {
 public:
  MpirunJob(const std::vector<std::string>& command, bool show_everything)
      : output_(show_everything),
        signals_({SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT, SIGCHLD}),
        mpirun_(start(command, STDOUT_FILENO, stream_.writer(), /*own_group=*/!is_at_terminal_)) {
    stream_.close_writer();
  }

  MpirunResult run() {
    while (!has_ended()) wait();
    while (pass_on()) continue;
    output_.finish();
    show(Clock::time_point::max());
    result_.failure = output_.failure();
    result_.own_messages = output_.of_mpirun();
    return std::move(result_);
  }

 private:
  bool has_ended() { return waitpid(mpirun_, &result_.status, WNOHANG) == mpirun_; }

  void wait() {
    std::array<pollfd, 2> files = {{{signals_.file(), POLLIN, 0}, {stream_.reader(), POLLIN, 0}}};
    poll(files.data(), files.size(), milliseconds_left());
    pass_on();
    show(Clock::now() - time_for_line);
    while (const auto signal = signals_.next()) handle(*signal);
    if (output_.failure() && !is_ending_) order_end();
    if (is_ending_ && Clock::now() >= deadline_) return press();
    if (is_ending_ && !is_pressed_ && Clock::now() >= next_order_) give_order();
  }

  int milliseconds_left() const {
    auto next = Clock::time_point::max();
    if (output_.has_begun()) next = Clock::now() + time_for_line;
    if (is_ending_) next = std::min(next, deadline_);
    if (is_ending_ && !is_pressed_) next = std::min(next, next_order_);
    if (next == Clock::time_point::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    return std::max(0, static_cast<int>(left.count()));
  }

  // Takes what mpirun wrote. False where that was nothing.
  bool pass_on() {
    constexpr size_t most_bytes = 1 << 18;
    const std::string text = stream_.take(most_bytes);
    output_.add(text, Clock::now());
    return !text.empty();
  }

  void show(Clock::time_point since) {
    const JobOutput::Text text = output_.take(since);
    write_all(STDOUT_FILENO, text.output);
    write_all(STDERR_FILENO, text.errors);
  }

  void handle(const SignalQueue::Received& signal) {
    switch (signal.number) {
      case SIGCHLD:
        return;
      case SIGTERM:
      case SIGINT:
      case SIGHUP:
        return end(signal);
      default:
        kill(mpirun_, signal.number);
    }
  }

  // Told once, instances have time to end; told twice, they have little.
  void end(const SignalQueue::Received& signal) {
    output_.expect_end();
    if (result_.told_to_end != 0) return press();
    result_.told_to_end = signal.number;
    order_end();
  }

  void order_end() {
    is_ending_ = true;
    deadline_ = Clock::now() + time_to_end + time_for_mpirun;
    give_order();
  }

  void give_order() {
    kill(mpirun_, order_to_end);
    next_order_ = Clock::now() + time_between_orders;
  }

  void press() {
    kill(mpirun_, is_pressed_ ? SIGKILL : SIGTERM);  // supervisors see that it is gone
    is_pressed_ = true;
    deadline_ = Clock::now() + time_for_mpirun;
  }

  // There mpirun reads for instance 0, so it must be in the group that the terminal listens to.
  const bool is_at_terminal_ = isatty(STDIN_FILENO) != 0;
  FilePipe stream_;  // mpirun's stderr
  JobOutput output_;
  SignalQueue signals_;
  const pid_t mpirun_;
  MpirunResult result_;
  bool is_ending_ = false, is_pressed_ = false;
  Clock::time_point deadline_, next_order_;
};

}  // namespace

MpirunResult run_mpirun(const std::vector<std::string>& command, bool show_everything) {
  return MpirunJob(command, show_everything).run();
}

std::string output_of(const std::vector<std::string>& command) {
  FilePipe output;
  const pid_t child = start(command, output.writer(), STDERR_FILENO, /*own_group=*/false);
  output.close_writer();
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t size; (size = read(output.reader(), buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(size));
  }
  waitpid(child, nullptr, 0);
  return text;
}

}  // namespace tessera
