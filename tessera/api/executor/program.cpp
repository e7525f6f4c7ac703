#include "tessera/api/executor/program.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <numeric>

#include "tessera/api/executor/cycle_estimate.h"
#include "tessera/api/executor/input_check.h"
#include "tessera/api/executor/synthetic_inputs.h"
#include "tessera/api/instances.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/ops/host_call.h"
#include "tessera/runtime/environment.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/result_tensor.h"
#include "tessera/torch/tensor_memory.h"

namespace tessera {

void Program::check_compiled() const {
  check(is_compiled(), "Model has not been compiled or has been destroyed.");
}

void Program::load(CompiledStep step, CallSettings settings) {
  clear();
  executable_ = std::move(step.executable);
  weights_ = step.weights;
  facts_ = std::move(step.facts);
  constants_ = std::move(step.constants);
  tensor_names_ = std::move(step.tensor_names);
  gradient_counts_ = step.gradient_counts;
  request_.poll = std::move(settings.poll);
  prepare_inputs(settings.synthetic_data);
  prepare_outputs();
  anchors_ = Anchors(*executable_, request_);
  host_calls_.clear();
  for (const auto& [overload, nodes] : tessera::host_calls(executable_->graph())) {
    host_calls_.push_back({overload, nodes});
  }
}

void Program::clear() {
  session_.reset();
  executable_.reset();
  weights_ = 0;
  facts_ = {};
  inputs_.clear();
  results_.clear();
  constants_.clear();
  gradient_counts_.reset();
  request_ = {};
  tensor_names_.clear();
  anchors_ = {};
  synthetic_inputs_.clear();
  times_.clear();
  has_run_ = false;
}

void Program::attach(RngState rng, Instances* instances) {
  InstancesOfProgram joined;
  if (instances && signature().instances > 1) {
    joined = {instances, instances->open_program(fmt::format("'{}'", executable_->graph().name)),
              overlaps_additions()};
  }
  session_ = std::make_unique<Session>(executable_, threads_of_environment(), joined);
  session_->trace_to(trace_path_of_environment());
  session_->set_rng(rng);
  if (const int replicas = session_->replicas(); replicas > 1) {
    const Session::MemoryUse memory = session_->memory();
    log(LogLevel::info, "{} replicas: {} bytes for all of them, and {} for each", replicas,
        memory.shared, memory.of_each);
  }
}

void Program::detach() {
  host_calls_ = host_calls();
  for (const HostCall& call : host_calls_) {
    if (call.runs == 0) continue;
    log(LogLevel::info, "not native: {} ran {} times in {:.3f} s", call.overload, call.runs,
        call.seconds);
  }
  session_.reset();
}

void Program::prepare_inputs(bool synthetic) {
  const RunExtent extent = signature().extent();
  const int64_t micro_batches = signature().micro_batches_of_inputs();
  for (const StepInput& input : signature().inputs) {
    const at::ScalarType type = scalar_type_of(input.host);
    inputs_.push_back({input.name, type, stacked(input.type.shape, micro_batches), {}});
    warn_of_other_type(fmt::format("input '{}'", input.name), type);
  }
  request_.inputs.resize(inputs_.size());
  if (!synthetic) {
    times_.resize(static_cast<size_t>(extent.of_a_replica() * extent.replicas));
    request_.times = times_;
    return;
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const DType dtype = signature().inputs[i].type.dtype;
    synthetic_inputs_.push_back(synthetic_values({dtype, inputs_[i].shape}));
    request_.inputs[i] = bytes_of(synthetic_inputs_.back()).data();
  }
}

void Program::prepare_outputs() {
  for (const StepOutput& output : signature().outputs) {
    request_.outputs.push_back({nullptr, output.mode, output.period});
    const int64_t kept = outputs_kept(output.mode, output.period, signature().extent());
    results_.push_back({scalar_type_of(output.type.dtype), stacked(output.type.shape, kept)});
  }
}

void Program::check_inputs(c10::ArrayRef<at::Tensor> inputs) const {
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
void Program::check_apart(c10::ArrayRef<at::Tensor> inputs) const {
  for (const WrittenBack& changed : signature().written_back) {
    const size_t i = changed.input;
    for (size_t j = 0; j < inputs.size(); ++j) {
      check(i == j || !share_memory(inputs[i], inputs[j]),
            "forward changes the input '{}' in place, and the input '{}' lies in the same memory: "
            "a program cannot follow that; pass a clone() of one of them",
            inputs_[i].name, inputs_[j].name);
    }
  }
}

std::vector<at::Tensor> Program::stage(c10::ArrayRef<at::Tensor> inputs) {
  for (size_t i = 0; i < inputs.size() && synthetic_inputs_.empty(); ++i) {
    request_.inputs[i] = inputs_[i].stage.read(inputs[i], inputs_[i].name, input_warnings_);
  }
  std::vector<at::Tensor> room;
  room.reserve(results_.size());
  for (size_t i = 0; i < results_.size(); ++i) {
    room.push_back(empty_result(results_[i].shape, results_[i].type));
    request_.outputs[i].data = bytes_of(room.back()).data();
  }
  if (!anchors_.empty()) anchors_.before_run(request_);
  return room;
}

std::vector<at::Tensor> Program::run(c10::ArrayRef<at::Tensor> inputs,
                                     const std::vector<at::Tensor>& room,
                                     const std::function<std::vector<double>()>& numbers,
                                     std::chrono::steady_clock::time_point start) {
  const bool synthetic = times_.empty();
  session_->run(request_);
  has_run_ = true;
  if (!synthetic) times_[0].inputs_requested = start.time_since_epoch().count();
  if (!anchors_.empty()) anchors_.after_run(room, numbers());
  for (const WrittenBack& changed : signature().written_back) {
    if (synthetic) break;
    const at::NoGradGuard no_grad;
    at::Tensor target = inputs[changed.input];
    target.copy_(of_input_groups(room[changed.output]).reshape(target.sizes()));
  }
  if (gradient_counts_) log_gradient_counts(room);
  return returned(room);
}

// Of values for every replica those of the first in each group that read the same inputs.
at::Tensor Program::of_input_groups(const at::Tensor& values) const {
  const int64_t replicas = signature().replicas;
  const ReplicaGroups& groups = signature().input_groups;
  if (groups.count(replicas) == replicas) return values;
  const at::Tensor by_replica = values.reshape({signature().extent().of_a_replica(), replicas, -1});
  std::vector<at::Tensor> firsts;
  for (int64_t group = 0; group < groups.count(replicas); ++group) {
    firsts.push_back(by_replica.select(1, groups.member(group, 0, replicas)));
  }
  return at::stack(firsts, 1);
}

void Program::log_gradient_counts(const std::vector<at::Tensor>& results) const {
  const auto count = [&](size_t i) {
    const at::Tensor& of_replicas = results[*gradient_counts_ + i];
    const auto* counts = of_replicas.data_ptr<float>();
    return std::accumulate(counts, counts + of_replicas.numel(), 0.0);
  };
  log(LogLevel::debug,
      "float16 gradients of this call: {:.0f} elements overflowed (they are not finite), {:.0f} "
      "underflowed (they are not zero, but below 2^-14, and have lost digits)",
      count(0), count(1));
}

std::vector<at::Tensor> Program::returned(const std::vector<at::Tensor>& results) const {
  const std::vector<ReturnedTensor>& wanted = signature().returned;
  std::vector<at::Tensor> tensors;
  tensors.reserve(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].output) {
      tensors.push_back(results[*wanted[i].output]);
    } else {
      tensors.push_back(wanted[i].is_new ? constants_[i].clone() : constants_[i]);
    }
  }
  return tensors;
}

PerfCounters Program::perf_counters() const {
  if (!is_compiled()) return {};
  std::vector<std::vector<size_t>> kept;
  for (const ReturnedTensor& tensor : signature().returned) {
    if (!tensor.output) continue;  // a constant
    kept.push_back(micro_batches_kept(request_.outputs[*tensor.output], signature().extent()));
  }
  const auto times = has_run_ ? std::span(times_) : std::span<const MicroBatchTimes>();
  return tessera::perf_counters(times, inputs_.size(), kept);
}

int64_t Program::estimated_cycles() const {
  return tessera::estimated_cycles(executable_->graph(), signature().device_iterations,
                                   signature().gradient_accumulation);
}

std::vector<HostCall> Program::host_calls() const {
  std::vector<HostCall> calls = host_calls_;
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

}  // namespace tessera
