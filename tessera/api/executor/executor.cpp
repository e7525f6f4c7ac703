#include "tessera/api/executor/executor.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "tessera/api/acquire_device.h"
#include "tessera/api/environment.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"

namespace tessera {
namespace {

RngState initial_rng(const Options& options) {
  if (options.random_seed()) return {static_cast<uint64_t>(*options.random_seed()), 0};
  std::random_device device;
  const uint64_t seed = (uint64_t{device()} << 32) | device();
  return {seed >> 1, 0};  // not negative, as a seed of the user's
}

void check_options(Purpose purpose, const Options& options) {
  check(purpose == Purpose::training || options.Training().gradient_accumulation() == 1,
        "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its "
        "default value (1) when running a poptorch.inferenceModel(); it is {}. Use "
        "poptorch.Options().deviceIterations to run several batches in one call",
        options.Training().gradient_accumulation());
  if (options.output_mode() == OutputMode::every_n) {
    check(options.device_iterations() % options.output_return_period() == 0,
          "the output_return_period of OutputMode.EveryN, {}, must divide the {} device iterations",
          options.output_return_period(), options.device_iterations());
  }
}

OutputMode default_output_mode(Purpose purpose) {
  return purpose == Purpose::training ? OutputMode::final_value : OutputMode::all;
}

}  // namespace

Executor::Executor(Purpose purpose, ModelAccess model, const Options& options,
                   std::optional<Optimizer> optimizer)
    : purpose_(purpose),
      model_(std::move(model)),
      options_(options),
      weights_(mutex_, model_, program_),
      optimizer_(mutex_, purpose_, model_, options_, program_, std::move(optimizer)),
      rng_(initial_rng(options_)),
      has_seed_(options_.random_seed().has_value()) {
  check_options(purpose_, options_);
  if (options_.defaultOutputMode()) options_.outputMode(default_output_mode(purpose_));
  options_.freeze();
  optimizer_.open();
}

Executor::~Executor() {
  try {
    copyWeightsToHostIfNeeded();  // training is not lost with the executor
    if (optimizer_.is_shared()) optimizer_.bring_state();
  } catch (const std::exception& error) {
    log(LogLevel::error, "the trained weights could not be written to the module: {}",
        error.what());
  }
  optimizer_.close();
  weights_.close();
}

void Executor::replicaGrouping(const std::string& parameter, CommGroupType type, int64_t shards,
                               VariableRetrievalMode mode) {
  const std::lock_guard lock(mutex_);
  check(!isCompiled(),
        "replicaGrouping of '{}' must be called before the model is compiled; call destroy() first",
        parameter);
  const auto parameters = model_.parameters();
  const auto at = std::find_if(parameters.begin(), parameters.end(),
                               [&](const NamedTensor& named) { return named.name == parameter; });
  check(at != parameters.end() && parameter.find('.') == std::string::npos,
        "replicaGrouping: '{}' is no parameter of the model itself; those of its modules cannot "
        "have groups",
        parameter);
  groupings_.add(*at, type, shards, mode);
}

std::vector<at::Tensor> Executor::run(const std::vector<NamedTensor>& inputs) {
  check_callable();
  std::unique_lock lock(mutex_);
  if (!isCompiled()) {
    check(!is_offline(), ErrorKind::assertion,
          "Trying to run a model on an offline device: with ConnectionType.Never or an offline "
          "target it can only be compiled");
    compile(inputs);
  }
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& input : inputs) tensors.push_back(input.tensor);
  return run_compiled(tensors, lock);
}

std::optional<std::vector<at::Tensor>> Executor::run_again(c10::ArrayRef<at::Tensor> inputs) {
  std::unique_lock lock(mutex_);
  if (!isCompiled() || inputs.size() != program_.input_count()) return std::nullopt;
  return run_compiled(inputs, lock);
}

std::vector<at::Tensor> Executor::run_compiled(c10::ArrayRef<at::Tensor> inputs,
                                               std::unique_lock<std::recursive_mutex>& lock) {
  const auto start = std::chrono::steady_clock::now();
  const auto prepare = [&] {
    if (!isAttachedToDevice()) attachToDevice();
    if (device_.is_lost()) device_ = take_device();  // the parent's, before a fork
    program_.check_inputs(inputs);
    return weights_.are_on_device();
  };
  weights_.notice_borrowed_changes();
  while (!prepare()) {
    // Two executors that train the same weights in two threads must not wait for each other.
    lock.unlock();
    if (model_.poll) model_.poll();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock.lock();
    program_.check_compiled();
  }
  if (optimizer_.has_loaded_state()) send_loaded_state();

  const std::vector<at::Tensor> room = program_.stage(inputs);
  program_.check_apart(inputs);
  for (const WrittenBack& changed : program_.signature().written_back) {
    weights_.check_apart(inputs[changed.input], program_.signature().inputs[changed.input].name);
  }
  if (optimizer_.has_waiting()) optimizer_.bring_state();
  if (purpose_ == Purpose::training) weights_.mark_host_outdated();
  has_rng_state_ = true;
  optimizer_.mark_host_outdated();
  const auto numbers = [this] { return optimizer_.numbers(); };
  std::vector<at::Tensor> returned = program_.run(inputs, room, numbers, start);
  rng_ = program_.session().rng();
  return returned;
}

// A state that was loaded while the program runs: the host's weights go with it, since whoever
// loads one half of a checkpoint usually loaded the other as well.
void Executor::send_loaded_state() {
  if (weights_.host_is_outdated()) {
    log(LogLevel::debug, "copyWeightsToHost(): a state of the optimiser was loaded");
    weights_.copy_to_host();
  }
  optimizer_.send_state();
  weights_.copy_to_device();
}

void Executor::attachToDevice() {
  const std::lock_guard lock(mutex_);
  check(isCompiled(), "attachToDevice: the model has not been compiled yet; call it or compile()");
  check(!is_offline(), ErrorKind::assertion,
        "Trying to attach to an offline device: with ConnectionType.Never or an offline target a "
        "model can only be compiled");
  check(!isAttachedToDevice(), "attachToDevice: the model is attached already");
  attach(take_device());
}

Device Executor::take_device() const {
  if (!computes_) return {};
  const std::string_view purpose = purpose_ == Purpose::training ? "training" : "inference";
  return acquire_device(options_,
                        {.ipus_per_replica = model_.ipus ? model_.ipus() : 1,
                         .purpose = fmt::format("{} model '{}'", purpose,
                                                options_.model_name().value_or(model_.name)),
                         .poll = model_.poll,
                         .reclaim = model_.reclaim});
}

void Executor::attach(Device device) {
  program_.attach(rng_, instances_.get());
  device_ = std::move(device);
  if (device_.is_held()) {
    log(LogLevel::debug, "attached to device {}, IPUs {} to {}", device_.id(), device_.ipus().first,
        device_.ipus().first + device_.ipus().count - 1);
  }
  program_.session().check_values(options_.Precision().floating_point_exceptions());
  program_.session().check_calls(checks_calls());
  optimizer_.send_hyperparameters();
  optimizer_.send_first_values();
  weights_.copy_to_device();
  optimizer_.send_state();
}

void Executor::detachFromDevice() {
  const std::lock_guard lock(mutex_);
  check(isCompiled(), "detachFromDevice: the model has not been compiled yet");
  check(isAttachedToDevice(), "Device is not attached: detachFromDevice has nothing to detach");
  copyWeightsToHostIfNeeded();
  rng_ = program_.session().rng();
  if (optimizer_.has_loaded_state()) optimizer_.send_state();  // perhaps only a part of one
  optimizer_.bring_state();
  program_.detach();
  device_.release();
}

void Executor::destroy() {
  const std::lock_guard lock(mutex_);
  if (!isCompiled()) return;
  if (isAttachedToDevice()) {
    copyWeightsToHostIfNeeded();
    if (optimizer_.keeps_state()) optimizer_.bring_state();
  }
  optimizer_.clear();
  program_.detach();
  device_.release();
  weights_.clear();
  program_.clear();
}

void Executor::copyWeightsToHost() {
  const std::lock_guard lock(mutex_);
  program_.check_compiled();
  weights_.copy_to_host();
}

void Executor::copyWeightsToDevice() {
  const std::lock_guard lock(mutex_);
  program_.check_compiled();
  weights_.copy_to_device();
}

void Executor::copyNamedBuffersToDevice() {
  const std::lock_guard lock(mutex_);
  program_.check_compiled();
  const auto names = options_.updatable_named_buffers();
  check(names.has_value(),
        "copyNamedBuffersToDevice: no buffers were named; use Options.updatableNamedBuffers()");
  weights_.copy_named_to_device(*names);
}

}  // namespace tessera
