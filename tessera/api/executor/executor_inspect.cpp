// What an executor tells about its program and its last call.
#include <algorithm>
#include <mutex>

#include "tessera/api/executor/cycle_estimate.h"
#include "tessera/api/executor/executor.h"
#include "tessera/api/executor/tensor_names.h"
#include "tessera/api/optimizer/optimizer_numbers.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"

namespace tessera {

void Executor::check_for_compile() const {
  options_.check_for_compile();
  check(!options_.log_cycle_count() || !is_offline(),
        "logCycleCount: an offline target cannot run, so that there are no cycles to count");
  const auto named = options_.updatable_named_buffers();
  if (!named) return;
  const auto buffers = model_.buffers();
  for (const std::string& name : *named) {
    const bool known = std::any_of(buffers.begin(), buffers.end(),
                                   [&](const NamedTensor& buffer) { return buffer.name == name; });
    if (known) continue;
    std::vector<std::string_view> names;
    for (const NamedTensor& buffer : buffers) names.push_back(buffer.name);
    fail(ErrorKind::user,
         "updatableNamedBuffers: the model has no buffer '{}'; its buffers are: {}", name,
         names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
  }
}

// `gradients` are the outputs that capture made, before the optimiser took the gradients among
// them.
void Executor::name_and_anchor(Capture& captured, std::vector<Output> gradients) {
  std::erase_if(gradients,
                [](const Output& output) { return !output.name.starts_with(gradient_name("")); });
  NamingRequest request{.gradients = std::move(gradients),
                        .loss = captured.loss,
                        .numbers = {},
                        .module_scopes = options_.module_namescope()};
  if (purpose_ == Purpose::training) {
    for (auto& [name, value] : named_numbers(optimizer_, updated_)) request.numbers.push_back(name);
  }
  const TensorNames names(captured.graph, request);
  std::vector<AnchorWish> wishes;
  for (const auto& [short_name, anchored] : options_.anchored_tensors()) {
    AnchorWish wish{short_name, anchored.long_name, *options_.output_mode(),
                    options_.output_return_period()};
    if (anchored.mode) {
      wish.mode = *anchored.mode;
      wish.period = anchored.period;
    }
    if (wish.mode == OutputMode::every_n && options_.device_iterations() % wish.period != 0) {
      log(LogLevel::warn,
          "anchorTensor '{}': the period {} does not divide the {} device iterations; iterations "
          "after the last whole period are left out",
          short_name, wish.period, options_.device_iterations());
    }
    wishes.push_back(std::move(wish));
  }
  anchors_ = Anchors(wishes, names, captured.graph);
  tensor_names_ = names.list();
}

std::vector<std::string> Executor::getTensorNames() const {
  const std::lock_guard lock(mutex_);
  check(isCompiled(), ErrorKind::assertion,
        "getTensorNames: the model must be compiled before its tensors have names");
  return tensor_names_;
}

at::Tensor Executor::getAnchoredTensor(const std::string& short_name) const {
  const std::lock_guard lock(mutex_);
  return anchors_.value(short_name);
}

std::optional<std::vector<int64_t>> Executor::rng_state() const {
  const std::lock_guard lock(mutex_);
  check_compiled();
  const RngState rng = isAttachedToDevice() ? session_->rng() : rng_;
  const auto seed = static_cast<int64_t>(rng.seed);
  if (has_rng_state_) return std::vector{seed, static_cast<int64_t>(rng.step)};
  if (has_seed_) return std::vector{seed};
  return std::nullopt;
}

void Executor::set_rng_state(const std::optional<std::vector<int64_t>>& state) {
  const std::lock_guard lock(mutex_);
  check_compiled();
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
  if (isAttachedToDevice()) session_->set_rng(rng_);
}

PerfCounters Executor::getPerfCounters() const {
  const std::lock_guard lock(mutex_);
  if (!isCompiled()) return {};
  std::vector<std::vector<size_t>> kept;
  for (const CapturedOutput& output : outputs_) {
    if (output.graph_output < 0) continue;  // a constant
    kept.push_back(micro_batches_kept(request_.outputs[static_cast<size_t>(output.graph_output)],
                                      request_.device_iterations, request_.gradient_accumulation));
  }
  const auto times = has_run_ ? std::span(times_) : std::span<const MicroBatchTimes>();
  return perf_counters(times, inputs_.size(), kept);
}

int64_t Executor::cycleCount() const {
  const std::lock_guard lock(mutex_);
  check(options_.log_cycle_count(),
        "Cycle count logging is disabled: use Options.logCycleCount(True) before the model is "
        "wrapped");
  check(isCompiled() && has_run_,
        "cycleCount: run the model at least once before asking for its cycle count");
  static std::once_flag said;
  std::call_once(said, [] {
    log(LogLevel::warn,
        "cycleCount: the count is an estimate for one IPU from the work of the program's "
        "operators, not a measurement");
  });
  return estimated_cycles(executable_->graph(), request_.device_iterations,
                          request_.gradient_accumulation);
}

std::chrono::duration<double> Executor::compilationTime() const {
  const std::lock_guard lock(mutex_);
  check_compiled();
  check(options_.show_compilation_progress_bar(),
        "compilationTime: it is only measured while the compilation's progress bar is shown; use "
        "Options.showCompilationProgressBar(True)");
  return std::chrono::duration<double>(compilation_seconds_);
}

}  // namespace tessera
