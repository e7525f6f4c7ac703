// What an executor tells about its program and its last call.
#include <mutex>

#include "tessera/api/executor/executor.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"

namespace tessera {

std::vector<std::string> Executor::getTensorNames() const {
  const std::lock_guard lock(mutex_);
  check(isCompiled(), ErrorKind::assertion,
        "getTensorNames: the model must be compiled before its tensors have names");
  return program_.tensor_names();
}

at::Tensor Executor::getAnchoredTensor(const std::string& short_name) const {
  const std::lock_guard lock(mutex_);
  return program_.anchored(short_name);
}

std::optional<std::vector<int64_t>> Executor::rng_state() const {
  const std::lock_guard lock(mutex_);
  program_.check_compiled();
  const RngState rng = isAttachedToDevice() ? program_.session().rng() : rng_;
  const auto seed = static_cast<int64_t>(rng.seed);
  if (has_rng_state_) return std::vector{seed, static_cast<int64_t>(rng.step)};
  if (has_seed_) return std::vector{seed};
  return std::nullopt;
}

void Executor::set_rng_state(const std::optional<std::vector<int64_t>>& state) {
  const std::lock_guard lock(mutex_);
  program_.check_compiled();
  restore_rng_state(state);
}

void Executor::restore_rng_state(const std::optional<std::vector<int64_t>>& state) {
  const std::lock_guard lock(mutex_);
  if (!state) return;  // of a model without a seed that had not run: there is nothing to restore
  check(state->size() == 1 || state->size() == 2, ErrorKind::value,
        "rng_state must be a seed, alone or followed by 1 word as rng_state gave them; got a list "
        "of {}",
        state->size());
  has_seed_ = true;
  has_rng_state_ = state->size() == 2;
  rng_ = {static_cast<uint64_t>(state->front()),
          has_rng_state_ ? static_cast<uint64_t>(state->back()) : 0};
  if (isAttachedToDevice()) program_.session().set_rng(rng_);
}

PerfCounters Executor::getPerfCounters() const {
  const std::lock_guard lock(mutex_);
  return program_.perf_counters();
}

int64_t Executor::cycleCount() const {
  const std::lock_guard lock(mutex_);
  check(options_.log_cycle_count(),
        "Cycle count logging is disabled: use Options.logCycleCount(True) before the model is "
        "wrapped");
  check(isCompiled() && program_.has_run(),
        "cycleCount: run the model at least once before asking for its cycle count");
  static std::once_flag said;
  std::call_once(said, [] {
    log(LogLevel::warn,
        "cycleCount: the count is an estimate for one IPU from the work of the program's "
        "operators, not a measurement");
  });
  return program_.estimated_cycles();
}

std::vector<HostCall> Executor::hostCalls() const {
  const std::lock_guard lock(mutex_);
  return program_.host_calls();
}

const Executable& Executor::executable() const {
  program_.check_compiled();
  return program_.executable();
}

std::chrono::duration<double> Executor::compilationTime() const {
  const std::lock_guard lock(mutex_);
  program_.check_compiled();
  check(options_.show_compilation_progress_bar(),
        "compilationTime: it is only measured while the compilation's progress bar is shown; use "
        "Options.showCompilationProgressBar(True)");
  return std::chrono::duration<double>(compilation_seconds_);
}

}  // namespace tessera
