#include "tessera/api/executor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

#include "tessera/api/compile_hooks.h"
#include "tessera/api/environment.h"
#include "tessera/api/graph_export.h"
#include "tessera/api/input_check.h"
#include "tessera/api/optim.h"
#include "tessera/api/optimizer_numbers.h"
#include "tessera/api/result_tensor.h"
#include "tessera/api/synthetic_inputs.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/progress_bar.h"
#include "tessera/ops/host_call.h"
#include "tessera/runtime/compile.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/dispatch.h"
#include "tessera/torch/narrowing.h"

namespace tessera {
namespace {

RngState initial_rng(const Options& options) {
  if (options.random_seed()) return {static_cast<uint64_t>(*options.random_seed()), 0};
  std::random_device device;
  const uint64_t seed = (uint64_t{device()} << 32) | device();
  return {seed >> 1, 0};  // not negative, as a seed of the user's
}

Optimizer default_optimizer(const ModelAccess& model) {
  std::vector<at::Tensor> parameters;
  for (const auto& parameter : model.parameters()) parameters.push_back(parameter.tensor);
  return optim::SGD(std::move(parameters), {.lr = 0.01});
}

void check_options(Purpose purpose, const Options& options) {
  check(options.replication_factor() == 1,
        "replicationFactor({}): running more than one replica is not supported yet, it comes with "
        "a later version; use replicationFactor(1)",
        options.replication_factor());
  check(purpose == Purpose::training || options.Training().gradient_accumulation() == 1,
        "gradientAccumulation must be 1 for inference, got {}; use deviceIterations to run several "
        "batches in one call",
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

std::string described(at::ScalarType type, const Shape& shape) {
  return fmt::format("{}{}", c10::toString(type), to_string(shape));
}

}  // namespace

Executor::Executor(Purpose purpose, ModelAccess model, const Options& options,
                   std::optional<Optimizer> optimizer)
    : purpose_(purpose),
      model_(std::move(model)),
      options_(options),
      optimizer_(optimizer                      ? std::move(*optimizer)
                 : purpose == Purpose::training ? default_optimizer(model_)
                                                : Optimizer("SGD", {})),
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
  for (const auto& weight : host_weights_) {
    if (weight->newer_values == this) weight->newer_values = nullptr;
  }
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
    check(tensor.numel() > 0, "input '{}' has no elements: its shape is {}", name,
          to_string(shape_of(tensor)));
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
  CaptureRequest request;
  request.parameters = model_.parameters();
  request.buffers = model_.buffers();
  request.example_inputs = micro_batch(inputs);
  request.forward = model_.forward;
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

  CompileOptions compile_options;
  compile_options.precise = options_.precise_results();
  compile_options.autotune = options_.autotuned();
  compile_options.keep_operators = options_.Precision().floating_point_exceptions();
  // Capture is the first third of the bar.
  compile_options.progress = [&](int percent) { progress(30 + percent * 7 / 10); };
  auto executable = tessera::compile(std::move(captured.graph), compile_options);
  export_graph(executable->graph());
  executable_ = std::move(executable);
  progress(100);

  weights_ = std::move(captured.states);
  outputs_ = std::move(captured.outputs);
  changed_inputs_ = std::move(captured.changed_inputs);
  host_weights_.clear();
  for (const BoundState& weight : weights_) host_weights_.push_back(host_weight(weight.host));
  sent_versions_.assign(weights_.size(), 0);
  prepare_calls(inputs);
  host_calls_.clear();
  for (const auto& [overload, nodes] : host_calls(executable_->graph())) {
    host_calls_.push_back({overload, nodes});
  }
  compilation_seconds_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!is_offline()) attachToDevice();
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
    const at::Tensor& tensor = inputs[i];
    check(tensor.scalar_type() == inputs_[i].type && tensor.sizes() == inputs_[i].shape,
          "input '{}' is {}, but the model was compiled for {}; call destroy() or wrap the model "
          "again to compile it for other inputs",
          inputs_[i].name, described(tensor.scalar_type(), shape_of(tensor)),
          described(inputs_[i].type, inputs_[i].shape));
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
  const std::lock_guard lock(mutex_);
  if (!isCompiled()) {
    check(!is_offline(), ErrorKind::assertion,
          "Trying to run a model on an offline device: with ConnectionType.Never or an offline "
          "target it can only be compiled");
    compile(inputs);
  }
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& input : inputs) tensors.push_back(input.tensor);
  return run_compiled(tensors);
}

std::optional<std::vector<at::Tensor>> Executor::run_again(c10::ArrayRef<at::Tensor> inputs) {
  const std::lock_guard lock(mutex_);
  if (!isCompiled() || inputs.size() != inputs_.size()) return std::nullopt;
  return run_compiled(inputs);
}

std::vector<at::Tensor> Executor::run_compiled(c10::ArrayRef<at::Tensor> inputs) {
  const auto start = std::chrono::steady_clock::now();
  if (!isAttachedToDevice()) attachToDevice();
  check_inputs(inputs);
  fetch_newer_weights();
  if (optimizer_.state().pending(*this)) send_loaded_state();

  const bool synthetic = times_.empty();
  for (size_t i = 0; i < inputs.size() && !synthetic; ++i) {
    request_.inputs[i] = inputs_[i].stage.read(inputs[i], inputs_[i].name, input_warnings_);
  }
  std::vector<at::Tensor> results;
  results.reserve(results_.size());
  for (size_t i = 0; i < results_.size(); ++i) {
    results.push_back(empty_result(results_[i].shape, results_[i].type));
    request_.outputs[i].data = bytes_of(results.back()).data();
  }
  if (!anchors_.empty()) anchors_.before_run(request_);
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
  check(isAttachedToDevice(), "detachFromDevice: the model is not attached to a device");
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
  executable_.reset();
  weights_.clear();
  host_weights_.clear();
  sent_versions_.clear();
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

void Executor::copyWeightsToHost() {
  const std::lock_guard lock(mutex_);
  check_compiled();
  if (!isAttachedToDevice()) return;
  const NotRecorded quiet;  // user code may read a weight while another model is captured
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < weights_.size(); ++i) {
    const at::Tensor& host = weights_[i].host;
    const auto device_type = scalar_type_of(executable_->states()[i].type.dtype);
    const bool direct = host.is_contiguous() && host.scalar_type() == device_type;
    const at::Tensor staged = direct ? host : at::empty(host.sizes(), device_type);
    session_->read_state(i, bytes_of(staged));
    if (!direct) host.copy_(staged);
    host_weights_[i]->version += 1;
    if (host_weights_[i]->newer_values == this) host_weights_[i]->newer_values = nullptr;
  }
  for (size_t i = 0; i < weights_.size(); ++i) sent_versions_[i] = host_weights_[i]->version;
  host_outdated_ = false;
}

bool Executor::copyWeightsToHostIfNeeded() {
  const std::lock_guard lock(mutex_);
  if (!isAttachedToDevice() || !host_outdated_) return false;
  copyWeightsToHost();
  return true;
}

void Executor::copyWeightsToDevice() {
  const std::lock_guard lock(mutex_);
  check_compiled();
  if (!isAttachedToDevice()) return;
  for (size_t i = 0; i < weights_.size(); ++i) send_weight(i);
  host_outdated_ = false;
}

void Executor::send_weight(size_t index) {
  HostWeight& weight = *host_weights_[index];
  if (weight.newer_values && weight.newer_values != this) {
    weight.newer_values->write_weights_to_host();
  }
  const BoundState& state = weights_[index];
  const std::string what = fmt::format(
      "{} '{}'", state.kind == StateKind::parameter ? "parameter" : "buffer", state.name);
  session_->write_state(index, bytes_of(narrowed_values(state.host, what)));
  sent_versions_[index] = weight.version;
  if (weight.newer_values == this) weight.newer_values = nullptr;
}

void Executor::copyNamedBuffersToDevice() {
  const std::lock_guard lock(mutex_);
  check_compiled();
  const auto names = options_.updatable_named_buffers();
  check(names.has_value(),
        "copyNamedBuffersToDevice: no buffers were named; use Options.updatableNamedBuffers()");
  if (!isAttachedToDevice()) return;  // attaching sends all of them
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (std::find(names->begin(), names->end(), weights_[i].name) != names->end()) send_weight(i);
  }
}

// Another executor over the same module may hold newer weights than the host.
void Executor::bring_weights_to_host() const {
  const auto bring = [this](const std::vector<NamedTensor>& tensors) {
    for (const auto& named : tensors) {
      WeightHolder* holder = host_weight(named.tensor)->newer_values;
      if (holder && holder != this) holder->write_weights_to_host();
    }
  };
  bring(model_.parameters());
  bring(model_.buffers());
}

// ... and may have trained on since we took the weights from the host.
void Executor::fetch_newer_weights() {
  bool stale = false;
  for (size_t i = 0; i < weights_.size(); ++i) {
    WeightHolder* holder = host_weights_[i]->newer_values;
    if (holder == this) continue;  // ours are the newest, whatever was written to the host
    if (holder) holder->write_weights_to_host();
    stale = stale || sent_versions_[i] != host_weights_[i]->version;
  }
  if (stale) copyWeightsToDevice();
}

void Executor::mark_host_outdated() {
  host_outdated_ = true;
  for (const auto& weight : host_weights_) weight->newer_values = this;
}

}  // namespace tessera
