#include "tessera/torch/capture.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/passes/add_optimizer.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/dispatch.h"
#include "tessera/torch/host_call.h"
#include "tessera/torch/narrowing.h"
#include "tessera/torch/pytorch_words.h"

namespace tessera {
namespace {

thread_local bool capturing = false;

class CapturingFlag {
 public:
  CapturingFlag() { capturing = true; }
  ~CapturingFlag() { capturing = false; }
};

// Parameters' gradients are put aside and come back, whatever happens.
class KeepGradients {
 public:
  explicit KeepGradients(const std::vector<NamedTensor>& parameters) {
    for (const auto& parameter : parameters) {
      const auto is_it = [&](const auto& kept) { return kept.first.is_same(parameter.tensor); };
      if (std::any_of(kept_.begin(), kept_.end(), is_it)) continue;  // it has several names
      kept_.emplace_back(parameter.tensor, parameter.tensor.grad());
      parameter.tensor.mutable_grad() = at::Tensor();
    }
  }
  ~KeepGradients() {
    for (auto& [parameter, gradient] : kept_) parameter.mutable_grad() = std::move(gradient);
  }
  KeepGradients(const KeepGradients&) = delete;
  KeepGradients& operator=(const KeepGradients&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;
};

// Random operators draw their keys from PyTorch's generator. It starts from the same place in every
// capture: only the user's seed decides what the program draws.
class KeepRandomState {
 public:
  KeepRandomState() : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
    generator_.set_current_seed(0);
  }
  ~KeepRandomState() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }
  KeepRandomState(const KeepRandomState&) = delete;
  KeepRandomState& operator=(const KeepRandomState&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

// They look at the gradients' values, which are not there.
class NoAnomalyChecks {
 public:
  NoAnomalyChecks() { AnomalyMode::set_enabled(enabled_, false); }
  ~NoAnomalyChecks() { AnomalyMode::set_enabled(enabled_, checks_); }
  NoAnomalyChecks(const NoAnomalyChecks&) = delete;
  NoAnomalyChecks& operator=(const NoAnomalyChecks&) = delete;

 private:
  using AnomalyMode = torch::autograd::AnomalyMode;
  bool enabled_ = AnomalyMode::is_enabled(), checks_ = AnomalyMode::should_check_nan();
};

// Autocast keeps the weights it has cast: those from before would be constants of the program,
// those of the capture have no values.
class ForgetCastWeights {
 public:
  ForgetCastWeights() { at::autocast::clear_cache(); }
  ~ForgetCastWeights() { at::autocast::clear_cache(); }
  ForgetCastWeights(const ForgetCastWeights&) = delete;
  ForgetCastWeights& operator=(const ForgetCastWeights&) = delete;
};

// Values that `value` is computed from.
std::vector<bool> ancestors(const Graph& graph, ValueId value) {
  std::vector<bool> seen(static_cast<size_t>(graph.value_count()), false);
  std::vector<ValueId> open = {value};
  while (!open.empty()) {
    const Node* node = graph.producer(open.back());
    open.pop_back();
    if (!node) continue;
    for (const ValueId operand : node->operands) {
      if (!operand.valid() || seen[static_cast<size_t>(operand.index)]) continue;
      seen[static_cast<size_t>(operand.index)] = true;
      open.push_back(operand);
    }
  }
  return seen;
}

// The one marked loss that feeds no other.
const Recorder::Loss& terminal_loss(Recorder& recorder) {
  const auto& losses = recorder.losses();
  check(!losses.empty(),
        "Couldn't find a loss in graph! A training model's forward must compute one of PyTorch's "
        "losses or mark its own with identity_loss");
  std::vector<bool> feeds_other(losses.size(), false);
  for (size_t i = 0; i < losses.size(); ++i) {
    const auto used = ancestors(recorder.graph(), losses[i].value);
    for (size_t j = 0; j < losses.size(); ++j) {
      const bool same_but_earlier = losses[j].value == losses[i].value && j < i;
      if (used[static_cast<size_t>(losses[j].value.index)] || same_but_earlier) {
        feeds_other[j] = true;
      }
    }
  }
  const Recorder::Loss* terminal = nullptr;
  for (size_t i = 0; i < losses.size(); ++i) {
    if (feeds_other[i]) continue;
    check(!terminal,
          "Multiple independent losses found in graph. Graph must have one final loss. Wrap final "
          "graph loss in poptorch.identity_loss. There is one at {} and one at {}",
          terminal ? place(terminal->origin) : "", place(losses[i].origin));
    terminal = &losses[i];
  }
  return *terminal;
}

// Says in `result` which value the loss is and where backward begins.
void run_backward(Recorder& recorder, const CaptureRequest& request, Capture& result) {
  const Recorder::Loss terminal = terminal_loss(recorder);
  const at::Tensor& loss = terminal.tensor;
  result.loss = terminal.value;
  if (!loss.requires_grad()) {
    log(LogLevel::warn,
        "the loss does not depend on any parameter that requires a gradient: the model runs, and "
        "nothing is trained");
    return;
  }
  recorder.begin_backward();
  const NoAnomalyChecks no_checks;
  at::Tensor gradient;
  if (request.scaled_loss) {
    gradient = recorder.ones_like(loss);
    result.loss_gradient = recorder.read(gradient);
  } else {
    gradient = at::ones_like(loss);
  }
  torch::autograd::backward({loss}, {gradient});
}

// Results are never 64-bit, also where they need no program.
CapturedOutput constant_output(const at::Tensor& tensor, bool made_in_forward) {
  if (!made_in_forward || !has_dtype(tensor.scalar_type())) return {-1, tensor.detach(), false};
  return {-1, narrowed_values(tensor, "a result that is a constant"), true};
}

std::vector<CapturedOutput> add_outputs(Recorder& recorder,
                                        const std::vector<at::Tensor>& tensors) {
  std::vector<CapturedOutput> outputs;
  for (const at::Tensor& tensor : tensors) {
    if (recorder.is_constant(tensor)) {
      outputs.push_back(constant_output(tensor, recorder.made_in_forward(tensor)));
      continue;
    }
    const auto index = static_cast<int64_t>(recorder.graph().outputs().size());
    recorder.graph().add_output(std::to_string(index), recorder.read(tensor));
    outputs.push_back({index, {}, false});
  }
  return outputs;
}

std::vector<ChangedInput> add_changed_inputs(Recorder& recorder,
                                             const std::vector<at::Tensor>& inputs) {
  std::vector<ChangedInput> changed;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueId value = recorder.read(inputs[i]);
    if (value == recorder.graph().inputs()[i].value) continue;
    changed.push_back({i, recorder.graph().outputs().size()});
    recorder.graph().add_output(fmt::format("Input___{}", i), value);
  }
  return changed;
}

void add_gradients(Recorder& recorder, const std::vector<NamedTensor>& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.grad().defined() || !recorder.graph().find_state(name)) continue;
    recorder.graph().add_output(gradient_name(name), recorder.read(tensor.grad()));
  }
}

// What a program would return for a tensor.
at::Tensor result_of_part(const Recorder& recorder, const at::Tensor& tensor) {
  at::Tensor result = tensor.detach();
  if (!has_dtype(result.scalar_type())) return result.clone();
  if (recorder.is_constant(result)) {
    const NotRecorded quiet;
    result = narrowed_values(result, "a result that is a constant");
  }
  return result.clone(at::MemoryFormat::Contiguous)
      .to(scalar_type_of(narrowed(dtype_of(result.scalar_type()))));
}

// The exception that is being handled: ours if it stands for one of ours, or else the user's own.
[[noreturn]] void rethrow_from_forward(const FrontEnd& front_end) {
  if (const auto ours = front_end.unwrapped(std::current_exception())) {
    std::rethrow_exception(ours);
  }
  try {
    throw;
  } catch (const std::exception& error) {
    check(
        !says_no_memory(error.what()),
        "forward looked at the value of a tensor (by data_ptr, an accessor or printing), which is "
        "only known when the program runs; use tensor operators instead");
    throw;
  }
}

FrontEnd front_end_of(const CaptureRequest& request) {
  if (request.front_end.locate) return request.front_end;
  return {.locate = CppLocator(request.modules), .guesses_modules = true};
}

}  // namespace

bool is_capturing() { return capturing; }

Capture capture(const CaptureRequest& request) {
  use_pytorch_for_host_calls();
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const c10::InferenceMode differentiable(false);  // whatever the caller's mode is
  const KeepGradients gradients(request.parameters);
  const KeepRandomState random_state;
  const ForgetCastWeights cast_weights;
  Recorder recorder(request.parameters, request.buffers, front_end_of(request));

  Capture result;
  std::vector<at::Tensor> inputs, outputs;
  for (const auto& [name, example] : request.example_inputs) {
    inputs.push_back(recorder.add_input(name, example));
  }
  try {
    const CapturingFlag flag;
    const at::AutoGradMode with_gradients(true);
    const Recording recording(recorder);
    outputs = request.forward(inputs);
    recorder.check_supported();
    if (request.training) run_backward(recorder, request, result);
  } catch (...) {
    recorder.seal();
    rethrow_from_forward(recorder.front_end());
  }
  result.outputs = add_outputs(recorder, outputs);
  result.changed_inputs = add_changed_inputs(recorder, inputs);
  for (const ValueId value : recorder.kept()) {
    Graph& graph = recorder.graph();
    graph.add_output(fmt::format("Check___{}", graph.outputs().size()), value);
  }
  if (request.training) add_gradients(recorder, request.parameters);
  recorder.finish_states();
  recorder.seal();
  result.states = recorder.bound_states();
  result.borrowed = recorder.borrowed();
  result.graph = std::move(recorder.graph());
  return result;
}

std::vector<at::Tensor> capture_inside(const CaptureRequest& request) {
  TESSERA_INVARIANT(is_capturing() && current_recorder(), "nothing is being captured");
  Recorder& recorder = *current_recorder();
  const c10::InferenceMode differentiable(false);
  const at::AutoGradMode with_gradients(true);  // as in capture()
  std::vector<NamedTensor> weights;
  for (const auto* named : {&request.parameters, &request.buffers}) {
    for (const NamedTensor& weight : *named) {
      if (weight.tensor.has_storage()) weights.push_back(weight);
    }
  }
  std::vector<ValueId> before;
  for (const NamedTensor& weight : weights) {
    recorder.borrow(weight);
    before.push_back(recorder.written_value(weight.tensor));
  }
  std::vector<at::Tensor> inputs;
  for (const auto& [name, tensor] : request.example_inputs) {
    inputs.push_back(tensor.detach().clone(at::MemoryFormat::Contiguous));
  }
  std::vector<uint32_t> versions;
  for (const at::Tensor& input : inputs) versions.push_back(input._version());
  const size_t losses = recorder.losses().size();
  const std::vector<at::Tensor> outputs = request.forward(inputs);
  recorder.keep_losses(losses);

  for (size_t i = 0; i < inputs.size(); ++i) {
    check(inputs[i]._version() == versions[i],
          "a wrapped model that forward calls changes its input '{}' in place, which it cannot do "
          "as a part of another model's program; let it change a clone()",
          request.example_inputs[i].name);
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    check(recorder.written_value(weights[i].tensor) == before[i],
          "a wrapped model that forward calls changes its '{}' (as a batch norm in training mode "
          "does), which it cannot do as a part of another model's program; call eval() on its "
          "module before it is wrapped, or call the module itself",
          weights[i].name);
  }
  std::vector<at::Tensor> results;
  for (const at::Tensor& output : outputs) results.push_back(result_of_part(recorder, output));
  return results;
}

}  // namespace tessera
