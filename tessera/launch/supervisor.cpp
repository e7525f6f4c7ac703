#include "tessera/launch/supervisor.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include "tessera/base/error.h"
#include "tessera/launch/child_program.h"
#include "tessera/launch/core_share.h"
#include "tessera/launch/failure.h"
#include "tessera/launch/instance_environment.h"
#include "tessera/launch/output_relay.h"
#include "tessera/launch/signal_queue.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds time_between_looks{500};  // whether mpirun is still there
constexpr std::chrono::milliseconds time_between_packets{1};
constexpr std::chrono::milliseconds time_for_rest{200};  // of the output
// A supervisor that ended at once would let mpirun kill the others, before poprun can tell them to
// end. Where poprun is not there, mpirun does it after that time.
constexpr std::chrono::seconds time_for_order{2};

// Set by mpirun for the processes that it starts.
constexpr const char* rank_variable = "OMPI_COMM_WORLD_RANK";

Instance find_instance(const SupervisorJob& job) {
  int64_t index = job.index;
  if (index == SupervisorJob::none) {
    const char* rank = std::getenv(rank_variable);
    check(rank != nullptr, "{} is not set: mpirun must start the supervisors", rank_variable);
    index = std::atoll(rank);
  }
  const std::vector<Instance> all = place_instances(job.hosts, job.instances, job.replicas);
  check(index >= 0 && index < job.instances, "there is no instance {} of {}", index, job.instances);
  return all[static_cast<size_t>(index)];
}

class Supervisor {
 public:
  explicit Supervisor(const SupervisorJob& job)
      : job_(job),
        instance_(find_instance(job)),
        signals_({SIGTERM, SIGINT, SIGHUP, order_to_end, SIGUSR1, SIGUSR2, SIGCONT, SIGCHLD}) {
    const bool is_silent =
        job.output_from != SupervisorJob::none && job.output_from != instance_.index;
    if (!is_silent && !job.has_poprun) return;
    relay_.emplace(instance_.index, is_silent ? OutputRelay::Way::kept : OutputRelay::Way::packets,
                   STDERR_FILENO);
  }

  int run() {
    prepare();
    start();
    while (!program_->status()) wait();
    const bool has_failed = exit_code() != 0 && !is_told_to_end_;
    pass_on_rest(time_for_rest);
    if (has_failed) report();
    program_->end_leftovers();
    pass_on_rest(time_for_rest);
    if (has_failed) wait_for_order();
    return is_ordered_to_end_ ? 0 : exit_code();
  }

 private:
  void prepare() {
    std::signal(SIGPIPE, SIG_IGN);  // an mpirun that is gone is noticed otherwise
    if (job_.binds) {
      bind_to_cores(
          share_of_cores(usable_cores(), instance_.index_on_host, instance_.instances_on_host));
    }
    for (const auto& [name, value] :
         popdist_variables(instance_, job_.instances, job_.ipus_per_replica)) {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }

  void start() {
    program_.emplace(job_.program, relay_ ? relay_->program_output() : -1,
                     relay_ ? relay_->program_errors() : -1);
    if (relay_) relay_->close_program_ends();
  }

  // For a signal, output, or a moment.
  void wait() {
    const bool is_handed_over = !relay_ || relay_->hand_over();
    wait_until(Clock::now() + (is_handed_over ? time_between_looks : time_between_packets));
    handle_signals();
    if (relay_) relay_->take();
    if (is_under_mpirun_ && getppid() != parent_ && !is_told_to_end_) tell_to_end(SIGTERM);
    if (is_told_to_end_ && Clock::now() >= deadline_) kill();
  }

  void wait_until(Clock::time_point time) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::min(time, is_told_to_end_ ? deadline_ : time) - Clock::now());
    // poll() ignores numbers below 0.
    std::array<pollfd, 3> files = {{{signals_.file(), POLLIN, 0},
                                    {relay_ ? relay_->readable_output() : -1, POLLIN, 0},
                                    {relay_ ? relay_->readable_errors() : -1, POLLIN, 0}}};
    poll(files.data(), files.size(), std::max<int>(0, static_cast<int>(left.count())));
  }

  void handle_signals() {
    while (const auto signal = signals_.next()) handle(*signal);
  }

  void handle(const SignalQueue::Received& signal) {
    switch (signal.number) {
      case SIGCHLD:
        return;
      case SIGTERM:
      case SIGINT:
      case SIGHUP:
        // At a terminal the program got it too.
        return tell_to_end(signal.from_terminal ? 0 : signal.number);
      case SIGUSR1:
      case SIGUSR2:
      case SIGCONT:
        return program_->send(signal.number);
      default:  // an order, which poprun repeats
        if (!is_ordered_to_end_) tell_to_end(SIGTERM);
        is_ordered_to_end_ = true;
    }
  }

  void tell_to_end(int signal) {
    if (!is_told_to_end_) deadline_ = Clock::now() + time_to_end;
    is_told_to_end_ = true;
    program_->send(signal);
  }

  void kill() {
    program_->send(SIGKILL);
    deadline_ = Clock::now() + std::chrono::seconds(1);  // for the kernel to do so
  }

  Failure failure() {
    const bool has_others = job_.instances > 1;
    if (const int error = program_->start_error(); error != 0) {
      return start_failure_of(instance_.index, instance_.host, job_.program.front(), error,
                              has_others);
    }
    return failure_of(instance_.index, instance_.host, *program_->status(), has_others);
  }

  int exit_code() {
    const bool has_started = program_->start_error() == 0;
    return has_started ? exit_code_of(*program_->status()) : failure().exit_code;
  }

  void report() {
    std::string last = relay_ ? relay_->last_lines() : "";
    if (!last.empty() && last.back() != '\n') last += '\n';
    if (job_.has_poprun) {
      relay_->add(Packet::Kind::errors, last);
      relay_->add(Packet::Kind::failure, text_of(failure()));
      hand_over_all();
    } else {
      write_all(STDERR_FILENO, last + "poprun: " + failure().sentence + "\n");
    }
  }

  // What the program wrote before it ended. A terminal delivers that late, so we look until it is
  // closed: at once, unless other processes have it open still.
  void pass_on_rest(std::chrono::milliseconds patience) {
    if (!relay_) return;
    const auto end = Clock::now() + patience;
    while (!relay_->is_at_end() && Clock::now() < end) {
      if (!relay_->take()) wait_until(Clock::now() + time_between_packets);
      hand_over_all();
    }
    hand_over_all();
  }

  // Waits for mpirun, but not longer than one who is told to end may.
  void hand_over_all() {
    while (!relay_->hand_over() && !(is_told_to_end_ && Clock::now() >= deadline_)) {
      wait_until(Clock::now() + time_between_packets);
      handle_signals();
    }
  }

  void wait_for_order() {
    if (!job_.has_poprun || job_.instances == 1) return;
    const auto end = Clock::now() + time_for_order;
    while (Clock::now() < end && !is_told_to_end_) {
      wait_until(end);
      handle_signals();
    }
  }

  const SupervisorJob& job_;
  const Instance instance_;
  const bool is_under_mpirun_ = std::getenv(rank_variable) != nullptr;
  const pid_t parent_ = getppid();
  SignalQueue signals_;
  std::optional<OutputRelay> relay_;
  std::optional<ChildProgram> program_;
  bool is_told_to_end_ = false, is_ordered_to_end_ = false;
  Clock::time_point deadline_;
};

}  // namespace

int supervise(const SupervisorJob& job) { return Supervisor(job).run(); }

}  // namespace tessera
