// How an executor compiles its model: compile_program() is the table of contents, the steps follow
// in their order. The user's module is captured, completed to a whole step and compiled; the parts
// of the executor are told what came of it.
#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "tessera/api/environment.h"
#include "tessera/api/executor/compile_hooks.h"
#include "tessera/api/executor/executor.h"
#include "tessera/api/executor/find_program.h"
#include "tessera/api/executor/input_check.h"
#include "tessera/api/executor/joint_compile.h"
#include "tessera/api/executor/tensor_names.h"
#include "tessera/api/graph_export.h"
#include "tessera/api/instances.h"
#include "tessera/api/spoken.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/progress_bar.h"
#include "tessera/ops/registry.h"
#include "tessera/passes/add_optimizer.h"
#include "tessera/runtime/environment.h"
#include "tessera/runtime/program_key.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/dispatch.h"
#include "tessera/torch/tensor_memory.h"

namespace tessera {
namespace {

// Shown to the user where the options say so. Capture is the first third of it.
class CompileProgress {
 public:
  explicit CompileProgress(bool shown) {
    if (shown) bar_.emplace("Graph compilation", 100, ProgressOptions{.show_rate = false});
  }
  void reach(int percent) {
    if (bar_ && percent > reached_) bar_->advance(percent - reached_);
    reached_ = std::max(reached_, percent);
  }
  void captured() { reach(captured_percent); }
  void compiled(int percent) { reach(captured_percent + percent * (100 - captured_percent) / 100); }
  void found(const FoundProgram& program) {
    if (bar_) bar_->set_postfix(program.saved_time);
  }

 private:
  static constexpr int captured_percent = 30;

  std::optional<ProgressBar> bar_;
  int reached_ = 0;
};

// Operators shall not be named after the modules they come from.
void forget_modules(Graph& graph) {
  for (int32_t i = 0; i < graph.node_count(); ++i) graph.node(NodeId{i}).origin.module.clear();
}

// A tensor that forward returned and that needs no program, for callers without PyTorch.
ReturnedTensor constant_of(const CapturedOutput& output) {
  const at::Tensor& tensor = output.constant;
  ReturnedTensor returned{.is_new = output.made_in_forward};
  const bool plain = tensor.layout() == at::kStrided && tensor.is_cpu() &&
                     has_dtype(tensor.scalar_type()) && has_memory(tensor);
  if (!plain) return returned;
  const at::Tensor dense = tensor.contiguous().resolve_neg();
  const auto bytes = bytes_of(dense);
  returned.type = type_of(dense);
  returned.constant = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  return returned;
}

// What forward returned comes in the user's mode; inputs that forward changed come back whole, and
// anchors as they were asked for.
StepSignature signature_of(const Capture& captured, const std::vector<NamedTensor>& inputs,
                           std::vector<StepAnchor> anchors, const Options& options) {
  StepSignature signature = signature_of(captured.graph);
  signature.device_iterations = options.device_iterations();
  signature.replicas = options.replication_factor();
  signature.input_groups = {options.input_group_size(),
                            options.input_group_type() == CommGroupType::orthogonal};
  for (size_t i = 0; i < inputs.size(); ++i) {
    signature.inputs[i].host = dtype_of(inputs[i].tensor.scalar_type());
  }
  for (StepOutput& output : signature.outputs) {
    output.mode = *options.output_mode();
    output.period = options.output_return_period();
  }
  signature.returned.clear();
  for (const CapturedOutput& output : captured.outputs) {
    if (output.graph_output < 0) {
      signature.returned.push_back(constant_of(output));
    } else {
      signature.returned.push_back({.output = static_cast<size_t>(output.graph_output)});
    }
  }
  for (const ChangedInput& changed : captured.changed_inputs) {
    signature.written_back.push_back({changed.input, changed.graph_output});
    signature.outputs[changed.graph_output].mode = OutputMode::all;
  }
  for (const StepAnchor& anchor : anchors) {
    if (anchor.source != StepAnchor::Source::output) continue;
    signature.outputs[anchor.index].mode = anchor.mode;
    signature.outputs[anchor.index].period = anchor.period;
  }
  signature.anchors = std::move(anchors);
  return signature;
}

// Error where replicas would change a weight each for itself and nobody said that they may. The
// statistics of a batch norm may be each replica's own.
void check_buffers(const Graph& graph, const Options& options, Purpose purpose) {
  const int64_t replicas =
      purpose == Purpose::training ? options.total_replicas() : options.replication_factor();
  if (replicas == 1 || !options.broadcast_buffers()) return;
  const auto module_of = [](const State& state) {
    const size_t dot = state.name.rfind('.');
    return state.name.substr(0, dot == std::string::npos ? 0 : dot + 1);
  };
  const auto is_statistic = [&](const State& state) {
    const Node* last = graph.producer(state.after_micro_batch);
    return last && op(*last).kind == Kind::normalization;
  };
  std::set<std::string> counters;
  for (const State& state : graph.states()) {
    if (is_statistic(state)) counters.insert(module_of(state) + "num_batches_tracked");
  }
  for (const State& state : graph.states()) {
    if (state.after_micro_batch == state.initial || is_statistic(state) ||
        counters.contains(state.name)) {
      continue;
    }
    fail(ErrorKind::user,
         "PopTorch does not support broadcasting buffers. If your model is able to tolerate "
         "buffers becoming out of sync between replicas, you can disable buffer broadcasting using "
         "poptorch.Options.broadcastBuffers(False). Here forward changes '{}' in place",
         state.name);
  }
}

CompileOptions compile_options(const Options& options, CompileProgress& progress) {
  CompileOptions compile = compile_options_of_environment();
  cpu::Target& target = compile.target;
  target.precise = options.precise_results().value_or(target.precise);
  target.autotune = options.autotuned().value_or(target.autotune);
  const PrecisionOptions& precision = options.Precision();
  if (precision.stochastic_rounding()) compile.halves.rounding = Rounding::stochastic;
  compile.halves.matmul_partials = dtype_of(precision.partials_type());
  compile.halves.convolution_partials = dtype_of(precision.convolution_partials_type());
  compile.keep_operators = options.Precision().floating_point_exceptions();
  compile.progress = [&progress](int percent) { progress.compiled(percent); };
  return compile;
}

// False where all that forward returns was there before it ran.
bool computes_something(const Graph& graph) {
  const auto changes = [](const State& state) { return state.after_update != state.initial; };
  return !graph.outputs().empty() ||
         std::any_of(graph.states().begin(), graph.states().end(), changes);
}

// Copies of what the program was captured with: the user's own tensors may change.
std::vector<at::Tensor> copies_of(const std::vector<NamedTensor>& inputs) {
  const NotRecorded quiet;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> copies;
  for (const NamedTensor& input : inputs) {
    copies.push_back(input.tensor.detach().clone(at::MemoryFormat::Contiguous));
  }
  return copies;
}

}  // namespace

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
  join_instances();
  const auto start = std::chrono::steady_clock::now();
  CompileProgress progress(options_.show_compilation_progress_bar());

  Capture captured = capture_step(inputs);
  CompiledStep step;
  StepSignature signature = complete(captured, step, inputs);
  step.facts = {.program = program_key(captured.graph, signature),
                .lines = source_lines(captured.graph),
                .examples = copies_of(micro_batch(inputs)),
                .options = compile_options(options_, progress)};
  if (instances_) {
    agree(*instances_,
          {captured.graph.name, step.facts.program, signature, options_,
           has_seed_ || has_rng_state_, model_.poll},
          step.facts.options, rng_);
  }
  progress.captured();
  computes_ = computes_something(captured.graph);
  const bool at_once = options_.connection_type() == ConnectionType::always;
  Device device = at_once ? take_device() : Device();

  const FoundProgram found =
      to_load_
          ? take_program(*to_load_, std::move(captured.graph), std::move(signature), step.facts)
          : find_program(std::move(captured.graph), std::move(signature), step.facts, options_,
                         model_.poll);
  step.executable = found.executable;
  progress.found(found);
  step.facts.options.progress = {};
  export_graph(step.executable->graph());
  progress.reach(100);

  weights_.bind(captured, purpose_ == Purpose::training);
  program_.load(std::move(step),
                {.poll = model_.poll, .synthetic_data = options_.synthetic_data()});
  if (!is_offline()) attach(at_once ? std::move(device) : take_device());
  if (to_load_) restore(*std::exchange(to_load_, nullptr));
  compilation_seconds_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

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

// Where several processes train together, which the options say.
void Executor::join_instances() {
  if (purpose_ != Purpose::training || is_offline()) return;
  instances_ = instances_of(options_);
  check(!instances_ || groupings_.groups().empty(),
        "replicaGrouping cannot be used where several instances train together: groups would have "
        "to be parts of one instance; use one instance with all replicas");
}

Capture Executor::capture_step(const std::vector<NamedTensor>& inputs) {
  weights_.bring_to_host();
  weights_.check_host_memory();
  optimizer_.follow_module();
  groupings_.check(model_.parameters(), options_.replication_factor());
  std::optional<ValuesOfOneGroup> of_one_group(std::in_place, groupings_, model_.parameters());
  CaptureRequest request;
  request.parameters = model_.parameters();
  request.buffers = model_.buffers();
  request.example_inputs = micro_batch(inputs);
  request.forward = noted(model_.forward);
  request.training = purpose_ == Purpose::training;
  request.scaled_loss = optimizer_.looks_at_loss(inputs);
  request.front_end = model_.front_end;
  if (model_.modules) request.modules = model_.modules();
  Capture captured = capture(request);
  of_one_group.reset();
  for (const auto& [name, tensor] : request.parameters) {
    if (!groupings_.has(name)) continue;
    for (BoundState& state : captured.states) {
      if (state.name == name) state.host = window_of(tensor);
    }
  }
  return captured;
}

// One micro-batch of each input: what forward sees.
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

// Makes what was captured a whole step, with its update and its anchors, and says what goes in and
// out of it.
StepSignature Executor::complete(Capture& captured, CompiledStep& step,
                                 const std::vector<NamedTensor>& inputs) {
  captured.graph.name =
      options_.model_name().value_or(purpose_ == Purpose::training ? "training" : "inference");
  check_buffers(captured.graph, options_, purpose_);
  const int64_t accumulation = options_.Training().gradient_accumulation();
  if (purpose_ == Purpose::training) optimizer_.scale_loss(captured, accumulation);
  std::vector<Output> gradients = captured.graph.outputs();
  if (purpose_ == Purpose::training) optimizer_.add_update(captured, accumulation, groupings_);
  std::vector<StepAnchor> anchors = name_and_anchor(captured, std::move(gradients), step);
  add_gradient_counts(captured.graph, step);
  if (!options_.module_namescope()) forget_modules(captured.graph);
  for (const CapturedOutput& output : captured.outputs) step.constants.push_back(output.constant);
  step.weights = captured.states.size();
  StepSignature signature = signature_of(captured, inputs, std::move(anchors), options_);
  signature.gradient_accumulation = accumulation;
  if (purpose_ == Purpose::training) signature.instances = options_.Distributed().numProcesses();
  signature.grouped_states = groupings_.states_of(captured.graph);
  for (size_t i = 0; step.gradient_counts && i < 2; ++i) {
    signature.outputs[*step.gradient_counts + i].mode = OutputMode::sum;
  }
  if (model_.output_structure) signature.structure = model_.output_structure();
  return signature;
}

// For the log, which tells after each call of what was too large and too small for float16.
void Executor::add_gradient_counts(Graph& graph, CompiledStep& step) const {
  const LossScale& scale = optimizer_.loss_scale();
  if (!scale.overflowed.valid()) return;
  step.gradient_counts = graph.outputs().size();
  graph.add_output("Count___overflowed", scale.overflowed);
  graph.add_output("Count___underflowed", scale.underflowed);
}

// `gradients` are the outputs that capture made, before the optimiser took the gradients among
// them.
std::vector<StepAnchor> Executor::name_and_anchor(Capture& captured, std::vector<Output> gradients,
                                                  CompiledStep& step) const {
  std::erase_if(gradients,
                [](const Output& output) { return !output.name.starts_with(gradient_name("")); });
  const TensorNames names(captured.graph, {.gradients = std::move(gradients),
                                           .loss = captured.loss,
                                           .final_loss_scale = optimizer_.loss_scale().final_scale,
                                           .numbers = optimizer_.number_names(),
                                           .module_scopes = options_.module_namescope()});
  step.tensor_names = names.list();
  std::vector<AnchorRequest> requests;
  for (const auto& [short_name, anchored] : options_.anchored_tensors()) {
    AnchorRequest request{short_name, anchored.long_name, *options_.output_mode(),
                          options_.output_return_period()};
    if (anchored.mode) {
      request.mode = *anchored.mode;
      request.period = anchored.period;
    }
    if (request.mode == OutputMode::every_n && options_.device_iterations() % request.period != 0) {
      log(LogLevel::warn,
          "anchorTensor '{}': the period {} does not divide the {} device iterations; iterations "
          "after the last whole period are left out",
          short_name, request.period, options_.device_iterations());
    }
    requests.push_back(std::move(request));
  }
  return add_anchors(requests, names, captured.graph);
}

}  // namespace tessera
