#include "tessera/api/executor/executor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "tessera/api/environment.h"
#include "tessera/api/executor/compile_hooks.h"
#include "tessera/api/executor/input_check.h"
#include "tessera/api/executor/synthetic_inputs.h"
#include "tessera/api/graph_export.h"
#include "tessera/api/optimizer/optim.h"
#include "tessera/api/optimizer/optimizer_numbers.h"
#include "tessera/api/spoken.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/progress_bar.h"
#include "tessera/ops/host_call.h"
#include "tessera/runtime/compile_environment.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/dispatch.h"
#include "tessera/torch/narrowing.h"
#include "tessera/torch/result_tensor.h"
#include "tessera/torch/tensor_memory.h"

namespace tessera {
namespace {

RngState initial_rng(const Options& options) {
  if (options.random_seed()) return {static_cast<uint64_t>(*options.random_seed()), 0};
  std::random_device device;
  const uint64_t seed = (uint64_t{device()} << 32) | device();
  return {seed >> 1, 0};  // not negative, as a seed of the user's
}

std::vector<at::Tensor> all_parameters(const ModelAccess& model) {
  std::vector<at::Tensor> parameters;
  for (const auto& parameter : model.parameters()) {
    const auto is_it = [&](const at::Tensor& known) { return known.is_same(parameter.tensor); };
    if (std::none_of(parameters.begin(), parameters.end(), is_it)) {
      parameters.push_back(parameter.tensor);  // once, whatever names it has
    }
  }
  return parameters;
}

void check_options(Purpose purpose, const Options& options) {
  check(options.replication_factor() == 1,
        "replicationFactor({}): running more than one replica is not supported yet, it comes with "
        "a later version; use replicationFactor(1)",
        options.replication_factor());
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

// Operators shall not be named after the modules they come from.
void forget_modules(Graph& graph) {
  for (int32_t i = 0; i < graph.node_count(); ++i) graph.node(NodeId{i}).origin.module.clear();
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
      optimizer_(optimizer                      ? std::move(*optimizer)
                 : purpose == Purpose::training ? optim::SGD(all_parameters(model_), {.lr = 0.01})
                                                : Optimizer("SGD", {})),
      default_optimizer_(purpose == Purpose::training && !optimizer),
      rng_(initial_rng(options_)),
      has_seed_(options_.random_seed().has_value()) {
  check_options(purpose_, options_);
  if (options_.defaultOutputMode()) options_.outputMode(default_output_mode(purpose_));
  options_.freeze();
  accept(optimizer_);
  optimizer_.state().connect(*this);
}

Executor::~Executor() {
  try {
    copyWeightsToHostIfNeeded();  // training is not lost with the executor
    if (optimizer_.is_shared()) bring_optimizer_state();
  } catch (const std::exception& error) {
    log(LogLevel::error, "the trained weights could not be written to the module: {}",
        error.what());
  }
  optimizer_.state().disconnect(*this, false);
  for (const ModuleWeight& weight : weights_) {
    weight.record->forget_newer_values_of(access_);
  }
  access_->close();
}

void Executor::check_compiled() const {
  check(isCompiled(), "Model has not been compiled or has been destroyed.");
}

const Executable& Executor::executable() const {
  check_compiled();
  return *executable_;
}

// One micro-batch of each input, to capture with: what forward sees.
std::vector<NamedTensor> Executor::micro_batch(const std::vector<NamedTensor>& inputs) const {
  const int64_t count = options_.micro_batches();
  std::vector<NamedTensor> batch;
  for (const auto& [name, tensor] : inputs) {
    check_readable(name, tensor);
    check(tensor.numel() > 0,
          "Zero-sized tensors are unsupported (Got shape {}): input '{}' has no elements",
          spoken_sizes(tensor.sizes()), name);
    const int64_t size = tensor.dim() == 0 ? 1 : tensor.size(0);
    check(size % count == 0, ErrorKind::assertion,
          "dimension 0 of input '{}' is {}, which cannot be divided by {} = deviceIterations ({}) "
          "x input groups ({}: replicationFactor ({}) / input group size ({})) x "
          "gradientAccumulation ({})",
          name, size, count, options_.device_iterations(),
          options_.replication_factor() / options_.input_group_size(),
          options_.replication_factor(), options_.input_group_size(),
          options_.Training().gradient_accumulation());
    batch.push_back({name, count == 1 ? tensor : tensor.narrow(0, 0, size / count)});
  }
  return batch;
}

void Executor::compile(const std::vector<NamedTensor>& inputs) {
  check_callable();
  const std::lock_guard lock(mutex_);
  if (isCompiled()) {
    log(LogLevel::warn, "compile() was called on a model that is compiled already; ignored");
    return;
  }
  compile_between_hooks([&] { compile_program(inputs); });
}

void Executor::compile_program(const std::vector<NamedTensor>& inputs) {
  const ErrorContext where("compiling the {} step",
                           purpose_ == Purpose::training ? "training" : "inference");
  prepare_process(options_);
  check_for_compile();
  const auto start = std::chrono::steady_clock::now();
  std::optional<ProgressBar> bar;
  if (options_.show_compilation_progress_bar()) {
    bar.emplace("Graph compilation", 100, ProgressOptions{.show_rate = false});
  }
  int shown = 0;
  const auto progress = [&](int percent) {
    if (bar && percent > shown) bar->advance(percent - shown);
    shown = std::max(shown, percent);
  };

  bring_weights_to_host();
  for (const auto& [name, tensor] : module_tensors()) {
    if (tensor.is_cpu() && tensor.layout() == at::kStrided) check_memory(name, tensor);
  }
  if (default_optimizer_) optimizer_.param_groups()[0].parameters = all_parameters(model_);
  CaptureRequest request;
  request.parameters = model_.parameters();
  request.buffers = model_.buffers();
  request.example_inputs = micro_batch(inputs);
  request.forward = noted(model_.forward);
  request.training = purpose_ == Purpose::training;
  request.front_end = model_.front_end;
  if (model_.modules) request.modules = model_.modules();
  Capture captured = capture(request);
  captured.graph.name =
      options_.model_name().value_or(purpose_ == Purpose::training ? "training" : "inference");
  std::vector<Output> gradients = captured.graph.outputs();
  if (purpose_ == Purpose::training) add_update(captured);
  name_and_anchor(captured, std::move(gradients));
  if (!options_.module_namescope()) forget_modules(captured.graph);
  progress(30);

  CompileOptions compile_options = compile_options_of_environment();
  cpu::Target& target = compile_options.target;
  target.precise = options_.precise_results().value_or(target.precise);
  target.autotune = options_.autotuned().value_or(target.autotune);
  compile_options.keep_operators = options_.Precision().floating_point_exceptions();
  // Capture is the first third of the bar.
  compile_options.progress = [&](int percent) { progress(30 + percent * 7 / 10); };
  auto executable = tessera::compile(std::move(captured.graph), compile_options);
  export_graph(executable->graph());
  executable_ = std::move(executable);
  progress(100);

  weights_ = ModuleWeights(captured.states, module_tensors(), purpose_ == Purpose::training);
  borrowed_ = BorrowedWeights(captured.borrowed);
  look_again_ = false;
  outputs_ = std::move(captured.outputs);
  changed_inputs_ = std::move(captured.changed_inputs);
  prepare_calls(inputs);
  host_calls_.clear();
  for (const auto& [overload, nodes] : host_calls(executable_->graph())) {
    host_calls_.push_back({overload, nodes});
  }
  if (!is_offline()) attachToDevice();
  compilation_seconds_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<HostCall> Executor::hostCalls() const {
  const std::lock_guard lock(mutex_);
  std::vector<HostCall> calls = host_calls_;  // of sessions that are over
  if (!session_) return calls;
  for (const cpu::HostCallTime& time : session_->host_calls()) {
    for (HostCall& call : calls) {
      if (call.overload != time.call->kernel) continue;
      call.runs += time.runs;
      call.seconds += static_cast<double>(time.nanoseconds) * 1e-9;
    }
  }
  return calls;
}

void Executor::check_inputs(c10::ArrayRef<at::Tensor> inputs) const {
  check(inputs.size() == inputs_.size(),
        "the model was compiled for {} input tensors, this call has {}; call destroy() or wrap the "
        "model again to compile it for other inputs",
        inputs_.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_as_compiled(inputs_[i].name, inputs[i], inputs_[i].type, inputs_[i].shape);
  }
}

// The program knows each input as a tensor of its own. In eager execution a change of one would be
// seen in others that lie in the same memory.
void Executor::check_changed_inputs(c10::ArrayRef<at::Tensor> inputs) {
  for (const ChangedInput& changed : changed_inputs_) {
    const size_t i = changed.input;
    for (size_t j = 0; j < inputs.size(); ++j) {
      check(i == j || !share_memory(inputs[i], inputs[j]),
            "forward changes the input '{}' in place, and the input '{}' lies in the same memory: "
            "a program cannot follow that; pass a clone() of one of them",
            inputs_[i].name, inputs_[j].name);
    }
    for (const ModuleWeight& weight : weights_) {
      check(
          !share_memory(inputs[i], weight.host),
          "forward changes the input '{}' in place, which lies in the memory of the model's '{}': "
          "a program cannot follow that; pass a clone() of it",
          inputs_[i].name, weight.name);
    }
  }
}

// What all calls have in common.
void Executor::prepare_calls(const std::vector<NamedTensor>& inputs) {
  inputs_.clear();
  for (const auto& [name, tensor] : inputs) {
    inputs_.push_back({name, tensor.scalar_type(), shape_of(tensor), {}});
    warn_of_narrowing(name, tensor.scalar_type());
  }
  request_ = {};
  request_.poll = model_.poll;
  request_.device_iterations = options_.device_iterations();
  request_.gradient_accumulation = options_.Training().gradient_accumulation();
  request_.inputs.resize(inputs_.size());
  results_.clear();
  has_run_ = false;
  synthetic_inputs_.clear();
  times_.clear();
  if (options_.synthetic_data()) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const DType dtype = executable_->data_inputs()[i].type.dtype;
      synthetic_inputs_.push_back(synthetic_values({dtype, inputs_[i].shape}));
      request_.inputs[i] = bytes_of(synthetic_inputs_.back()).data();
    }
  } else {
    times_.resize(static_cast<size_t>(options_.micro_batches()));
    request_.times = times_;
  }
  // What forward returned comes in the user's mode; inputs that forward changed come back whole.
  for (size_t i = 0; i < executable_->outputs().size(); ++i) {
    const TensorType& type = executable_->outputs()[i].type;
    RequestedOutput output{nullptr, *options_.output_mode(), options_.output_return_period()};
    for (const ChangedInput& changed : changed_inputs_) {
      if (changed.graph_output == i) output.mode = OutputMode::all;
    }
    if (const AnchorWish* wish = anchors_.wish_for_output(i)) {
      output.mode = wish->mode;
      output.period = wish->period;
    }
    const int64_t kept = outputs_kept(output.mode, output.period, request_.device_iterations,
                                      request_.gradient_accumulation);
    request_.outputs.push_back(output);
    results_.push_back({scalar_type_of(type.dtype), stacked(type.shape, kept)});
  }
  anchors_.prepare(*executable_, request_);
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
  if (!isCompiled() || inputs.size() != inputs_.size()) return std::nullopt;
  return run_compiled(inputs, lock);
}

std::vector<at::Tensor> Executor::run_compiled(c10::ArrayRef<at::Tensor> inputs,
                                               std::unique_lock<std::recursive_mutex>& lock) {
  const auto start = std::chrono::steady_clock::now();
  const auto prepare = [&] {
    if (!isAttachedToDevice()) attachToDevice();
    check_inputs(inputs);
    return have_weights();
  };
  borrowed_.notice_changes();
  while (!prepare()) {
    // Two executors that train the same weights in two threads must not wait for each other.
    lock.unlock();
    if (model_.poll) model_.poll();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock.lock();
    check_compiled();
  }
  if (optimizer_.state().pending(*this)) send_loaded_state();

  const bool synthetic = times_.empty();
  for (size_t i = 0; i < inputs.size() && !synthetic; ++i) {
    request_.inputs[i] = inputs_[i].stage.read(inputs[i], inputs_[i].name, input_warnings_);
  }
  if (!changed_inputs_.empty()) check_changed_inputs(inputs);
  std::vector<at::Tensor> results;
  results.reserve(results_.size());
  for (size_t i = 0; i < results_.size(); ++i) {
    results.push_back(empty_result(results_[i].shape, results_[i].type));
    request_.outputs[i].data = bytes_of(results.back()).data();
  }
  if (!anchors_.empty()) anchors_.before_run(request_);
  if (optimizer_.state().has_waiting()) bring_optimizer_state();
  if (purpose_ == Purpose::training) mark_host_outdated();
  has_rng_state_ = true;
  optimizer_outdated_ = true;
  session_->run(request_);
  rng_ = session_->rng();
  has_run_ = true;
  if (!synthetic) times_[0].inputs_requested = start.time_since_epoch().count();
  if (!anchors_.empty()) {
    std::vector<double> numbers;
    for (const auto& [name, value] : named_numbers(optimizer_, updated_)) numbers.push_back(value);
    anchors_.after_run(results, request_, numbers);
  }

  for (const ChangedInput& changed : changed_inputs_) {
    if (synthetic) break;
    const at::NoGradGuard no_grad;
    at::Tensor target = inputs[changed.input];
    target.copy_(results[changed.graph_output].reshape(target.sizes()));
  }
  std::vector<at::Tensor> returned;
  returned.reserve(outputs_.size());
  for (const CapturedOutput& output : outputs_) {
    if (output.graph_output >= 0) {
      returned.push_back(results[static_cast<size_t>(output.graph_output)]);
    } else {
      returned.push_back(output.made_in_forward ? output.constant.clone() : output.constant);
    }
  }
  return returned;
}

void Executor::attachToDevice() {
  const std::lock_guard lock(mutex_);
  check(isCompiled(), "attachToDevice: the model has not been compiled yet; call it or compile()");
  check(!is_offline(), ErrorKind::assertion,
        "Trying to attach to an offline device: with ConnectionType.Never or an offline target a "
        "model can only be compiled");
  check(!isAttachedToDevice(), "attachToDevice: the model is attached already");
  session_ = std::make_unique<Session>(executable_, default_thread_count());
  session_->set_rng(rng_);
  session_->check_values(options_.Precision().floating_point_exceptions());
  session_->check_calls(checks_calls());
  send_hyperparameters();
  copyWeightsToDevice();
  send_optimizer_state();
}

void Executor::close_session() {
  host_calls_ = hostCalls();
  for (const HostCall& call : host_calls_) {
    if (call.runs == 0) continue;
    log(LogLevel::info, "not native: {} ran {} times in {:.3f} s", call.overload, call.runs,
        call.seconds);
  }
  session_.reset();
}

void Executor::detachFromDevice() {
  const std::lock_guard lock(mutex_);
  check(isCompiled(), "detachFromDevice: the model has not been compiled yet");
  check(isAttachedToDevice(), "Device is not attached: detachFromDevice has nothing to detach");
  copyWeightsToHostIfNeeded();
  rng_ = session_->rng();
  if (optimizer_.state().pending(*this)) send_optimizer_state();  // perhaps only a part of one
  bring_optimizer_state();
  close_session();
}

void Executor::destroy() {
  const std::lock_guard lock(mutex_);
  if (!isCompiled()) return;
  if (isAttachedToDevice()) {
    copyWeightsToHostIfNeeded();
    if (optimizer_.keeps_state()) bring_optimizer_state();
  }
  if (!optimizer_.keeps_state()) optimizer_.state().clear();
  close_session();
  host_outdated_ = false;
  executable_.reset();
  weights_ = {};
  borrowed_ = {};
  updated_.clear();
  loaded_numbers_.clear();
  outputs_.clear();
  changed_inputs_.clear();
  inputs_.clear();
  results_.clear();
  tensor_names_.clear();
  anchors_ = {};
  synthetic_inputs_.clear();
}

}  // namespace tessera
