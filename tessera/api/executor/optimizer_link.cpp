#include "tessera/api/executor/optimizer_link.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/api/optimizer/optim.h"
#include "tessera/api/optimizer/optimizer_numbers.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/passes/add_optimizer.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/dispatch.h"

namespace tessera {
namespace {

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

bool is_weight(const at::Tensor& parameter, const at::Tensor& weight) {
  if (parameter.is_same(weight)) return true;
  return parameter.has_storage() && weight.has_storage() && parameter.numel() > 0 &&
         parameter.storage().is_alias_of(weight.storage()) &&
         parameter.storage_offset() == weight.storage_offset() &&
         parameter.sizes() == weight.sizes();
}

// What the module calls a parameter of an optimiser; empty where it does not have it.
std::string name_of(const at::Tensor& parameter, const std::vector<NamedTensor>& module) {
  for (const auto& [name, tensor] : module) {
    if (is_weight(parameter, tensor)) return name;
  }
  return {};
}

// What an optimiser has that is no part of the model stays as it is: eager execution might train
// it. Error where all of it is: whoever made it meant another model.
Optimizer::Names names_of(const Optimizer& optimizer, const std::vector<NamedTensor>& module) {
  Optimizer::Names names;
  std::vector<std::string> foreign;
  bool trains_some = false;
  for (const OptimizerGroup& group : optimizer.groups()) {
    auto& in_group = names.emplace_back();
    for (const at::Tensor& parameter : group.parameters) {
      in_group.push_back(name_of(parameter, module));
      trains_some = trains_some || !in_group.back().empty();
      if (!in_group.back().empty() || !parameter.requires_grad()) continue;
      foreign.push_back(fmt::format("number {} of group {} ({}{})", in_group.size() - 1,
                                    names.size() - 1, c10::toString(parameter.scalar_type()),
                                    to_string(shape_of(parameter))));
    }
  }
  const size_t count = foreign.size();
  constexpr size_t most = 5;
  if (count > most) {
    foreign.resize(most);
    foreign.push_back(fmt::format("{} more", count - most));
  }
  if (count == 0) return names;
  const std::string message = fmt::format(
      "the optimizer has parameters that are not the wrapped model's, and that its "
      "program does not train: {}",
      fmt::join(foreign, ", "));
  check(trains_some, "{}; make the optimizer from the parameters() that the model has now",
        message);
  log(LogLevel::warn, "{}", message);
  return names;
}

}  // namespace

OptimizerLink::OptimizerLink(std::recursive_mutex& mutex, Purpose purpose, const ModelAccess& model,
                             Options& options, Program& program, std::optional<Optimizer> optimizer)
    : mutex_(mutex),
      purpose_(purpose),
      model_(model),
      options_(options),
      program_(program),
      optimizer_(optimizer                      ? std::move(*optimizer)
                 : purpose == Purpose::training ? optim::SGD(all_parameters(model), {.lr = 0.01})
                                                : Optimizer("SGD", {})),
      is_default_(purpose == Purpose::training && !optimizer) {}

void OptimizerLink::open() {
  accept(optimizer_);
  optimizer_.state().connect(*this);
}

void OptimizerLink::close() { optimizer_.state().disconnect(*this, false); }

void OptimizerLink::follow_module() {
  if (is_default_) optimizer_.param_groups()[0].parameters = all_parameters(model_);
}

void OptimizerLink::clear() {
  if (!optimizer_.keeps_state()) optimizer_.state().clear();
  updated_.clear();
  loss_scale_ = {};
  loaded_numbers_.clear();
}

std::vector<std::string> OptimizerLink::number_names() const {
  std::vector<std::string> names;
  if (purpose_ != Purpose::training) return names;
  for (auto& [name, value] : named_numbers(optimizer_, updated_)) names.push_back(name);
  return names;
}

std::vector<double> OptimizerLink::numbers() const {
  std::vector<double> numbers;
  for (const auto& [name, value] : named_numbers(optimizer_, updated_)) numbers.push_back(value);
  return numbers;
}

bool OptimizerLink::counts_gradients() const {
  return counts_gradients_.value_or(log_level() <= LogLevel::debug);
}

bool OptimizerLink::looks_at_loss(const std::vector<NamedTensor>& inputs) const {
  if (purpose_ != Purpose::training) return false;
  if (options_.Training().automatic_loss_scaling() || optimizer_.scales_loss()) return true;
  const auto has_half = [](const std::vector<NamedTensor>& tensors) {
    return std::any_of(tensors.begin(), tensors.end(), [](const NamedTensor& named) {
      return named.tensor.scalar_type() == at::kHalf;
    });
  };
  return counts_gradients() && (has_half(inputs) || has_half(model_.parameters()));
}

// Gradients of float32 need no scale: their results are those of a scale of one, to the bit.
void OptimizerLink::scale_loss(Capture& captured, int64_t gradient_accumulation) {
  loss_scale_ = {};
  const auto settings = options_.Training().automatic_loss_scaling_settings();
  if (!captured.loss_gradient.valid()) return;
  const bool half = has_half_gradients(captured.graph, captured.loss_gradient);
  const ScaleLossSpec spec{.scaled = settings.enabled || (half && optimizer_.scales_loss()),
                           .automatic = settings.enabled,
                           .gradient_accumulation = gradient_accumulation,
                           .products_only = settings.products_only,
                           .edge = settings.bin_edge_location,
                           .statistics = half && counts_gradients()};
  if (!spec.scaled && !spec.statistics) return;
  loss_scale_ = tessera::scale_loss(captured.graph, spec, captured.loss_gradient, captured.loss);
  check_loss_scaling(optimizer_);
  if (settings.enabled && !loss_scale_.above.valid()) {
    log(LogLevel::warn,
        "setAutomaticLossScaling: none of the gradients that are tracked is float16, and so the "
        "loss scale stays {}",
        optimizer_.loss_scaling());
  }
}

void OptimizerLink::check_loss_scaling(const Optimizer& optimizer) const {
  constexpr double greatest_half = 65504;
  check(!loss_scale_.divisor.valid() || !loss_scale_.of_half ||
            optimizer.loss_scaling() <= greatest_half,
        ErrorKind::value,
        "loss_scaling {} is beyond float16, which the loss is; use at most {}, or make the loss "
        "float32",
        optimizer.loss_scaling(), greatest_half);
}

// The optimiser's part of the step: which captured parameter is in which group.
void OptimizerLink::add_update(Capture& captured, int64_t gradient_accumulation,
                               const ReplicaGroupings& groupings) {
  UpdateSpec spec = optimizer_.program();
  spec.gradient_accumulation = gradient_accumulation;
  spec.replicas = options_.total_replicas();
  spec.replica_groups = groupings.groups();
  const TrainingOptions& training = options_.Training();
  spec.mean_reduction =
      training.accumulation_and_replication_reduction_type() == ReductionType::mean;
  spec.running_mean = training.mean_accumulation_and_replication_reduction_strategy() ==
                      MeanReductionStrategy::running;
  spec.loss_scale = loss_scale_.divisor;
  grouped_ = names_of(optimizer_, model_.parameters());
  updated_.clear();
  for (size_t g = 0; g < spec.groups.size(); ++g) {
    for (const at::Tensor& parameter : optimizer_.groups()[g].parameters) {
      for (const BoundState& state : captured.states) {
        if (state.kind != StateKind::parameter || !is_weight(parameter, state.host)) continue;
        spec.groups[g].parameters.push_back(state.name);
        break;
      }
    }
    updated_.push_back(spec.groups[g].parameters);
  }
  add_optimizer(captured.graph, spec);
  const auto automatic = training.automatic_loss_scaling_settings();
  add_loss_scale_update(captured.graph, loss_scale_,
                        {.proportion = automatic.threshold_upper_count_proportion,
                         .period = automatic.update_period,
                         .replicas = options_.total_replicas()});
  optimizer_.compiled(automatic.enabled);
}

// The parameters of a group stay what they were, also where the module has new tensors for them.
void OptimizerLink::check_same_parameters(const Optimizer& optimizer) const {
  const auto& before = optimizer_.groups();
  const auto& now = optimizer.groups();
  const auto module = model_.parameters();
  for (size_t g = 0; g < now.size() && g < before.size(); ++g) {
    const auto &ours = now[g].parameters, &theirs = before[g].parameters;
    bool same = ours.size() == theirs.size();
    for (size_t i = 0; same && i < ours.size(); ++i) {
      same = ours[i].is_same(theirs[i]) ||
             (name_of(ours[i], module) == grouped_[g][i] && !grouped_[g][i].empty());
    }
    check(same,
          "setOptimizer: the parameters of group {} cannot change after the model was compiled; "
          "call destroy() first",
          g);
  }
}

// What an optimiser means for the options, and what of it has no meaning.
void OptimizerLink::accept(const Optimizer& optimizer) {
  attributes_.look_at(
      optimizer, options_.relax_optimizer_attributes_checks() ? LogLevel::debug : LogLevel::warn);
  // A sum would leave the range of half-precision accumulators.
  const OptimizerValues& values = optimizer.settings().values;
  const bool half = value_of(values, "accum_type", 32) == 16;
  if (!half || value_of(values, "use_combined_accum") != 0 ||
      options_.Training().mean_accumulation_and_replication_reduction_strategy() ==
          MeanReductionStrategy::running) {
    return;
  }
  check(!program_.is_compiled(), ErrorKind::value,
        "setOptimizer: accum_type=torch.float16 needs MeanReductionStrategy.Running, but the model "
        "is already compiled for another strategy; call destroy() first");
  options_.unfreeze();
  options_.Training().setMeanAccumulationAndReplicationReductionStrategy(
      MeanReductionStrategy::running);
  options_.freeze();
}

void OptimizerLink::set(Optimizer optimizer) {
  check(purpose_ == Purpose::training, "setOptimizer: an inference model has no optimizer");
  // Kept while it is disconnected, which must happen without our lock.
  std::optional<Optimizer> before;
  {
    const std::lock_guard lock(mutex_);
    accept(optimizer);
    if (program_.is_compiled()) {
      optimizer.take_program_of(optimizer_);
      check_same_parameters(optimizer);
      check_loss_scaling(optimizer);
    }
    before = optimizer_;
  }
  const bool same_state = &before->state() == &optimizer.state();
  const auto kept = before->state().to_send(*this);
  if (!same_state) before->state().disconnect(*this, before->keeps_state());
  {
    const std::lock_guard lock(mutex_);
    const bool changed = !optimizer.has_numbers_of(optimizer_);
    optimizer_ = std::move(optimizer);
    is_default_ = false;
    if (changed) {
      loaded_numbers_.clear();
      if (program_.is_attached()) send_hyperparameters();
    }
    host_outdated_ = host_outdated_ || changed || !same_state;
  }
  OptimizerState& state = optimizer_.state();
  if (same_state) return state.forget_numbers();
  state.connect(*this);
  const std::lock_guard lock(mutex_);
  // What a program remembers stays with it where the new optimiser brings nothing.
  if (kept && program_.is_compiled() && !program_.is_attached() && !state.to_send(*this)) {
    state.store(*this, kept->values);
  }
}

std::vector<double> OptimizerLink::hyperparameter_values() const {
  const auto numbers = optimizer_.hyperparameters();
  const std::map<std::string_view, double> by_name(numbers.begin(), numbers.end());
  std::vector<double> values;
  for (const NamedType& input : program_.executable().hyperparameters()) {
    const auto at = by_name.find(input.name);
    values.push_back(at == by_name.end() ? 0 : at->second);
  }
  return values;
}

void OptimizerLink::send_hyperparameters() {
  if (purpose_ == Purpose::training && log_level() <= LogLevel::debug) {
    for (const std::string& line : optimizer_.described()) {
      log(LogLevel::debug, "Updating {}", line);
    }
  }
  const auto numbers = optimizer_.hyperparameters();
  const std::map<std::string_view, double> by_name(numbers.begin(), numbers.end());
  const auto& inputs = program_.executable().hyperparameters();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto at = by_name.find(inputs[i].name);
    if (at != by_name.end()) program_.session().set_hyperparameter(i, at->second);
  }
}

void OptimizerLink::send_first_values() {
  const auto& states = program_.executable().states();
  for (size_t i = program_.weights(); i < states.size(); ++i) {
    if (states[i].name != loss_scale_factor_name) continue;
    const float one = 1;
    program_.session().write_state(i, std::as_bytes(std::span(&one, 1)));
  }
}

std::vector<at::Tensor> OptimizerLink::first_values() const {
  const NotRecorded quiet;
  std::map<std::string_view, at::Tensor> kept;
  const auto pending = optimizer_.state().to_send(*this);
  if (pending) {
    for (const auto& [name, tensor] : pending->values.ipu_state) kept[name] = tensor;
  }
  std::vector<at::Tensor> values;
  const auto& states = program_.executable().states();
  for (size_t i = program_.weights(); i < states.size(); ++i) {
    const auto type = scalar_type_of(states[i].type.dtype);
    const double first = states[i].name == loss_scale_factor_name ? 1 : 0;
    at::Tensor value = at::full(program_.executable().host_type(i).shape, first, type);
    const auto at = kept.find(states[i].name);
    if (at != kept.end() && at->second.sizes() == value.sizes()) {
      value = at->second.to(at::kCPU, type).contiguous();
    }
    values.push_back(std::move(value));
  }
  return values;
}

void OptimizerLink::restore(const std::function<std::span<const std::byte>(size_t state)>& value) {
  const size_t states = program_.executable().states().size();
  for (size_t i = program_.weights(); i < states; ++i) program_.session().write_state(i, value(i));
  host_outdated_ = true;
}

std::vector<NamedTensor> OptimizerLink::device_numbers() const {
  const NotRecorded quiet;
  std::vector<NamedTensor> numbers;
  for (const auto& [name, value] : optimizer_.device_numbers(updated_)) {
    const auto loaded = loaded_numbers_.find(name);
    const double number = loaded == loaded_numbers_.end() ? value : loaded->second;
    numbers.push_back({name, at::scalar_tensor(number, at::kFloat)});
  }
  return numbers;
}

std::optional<std::vector<NamedTensor>> OptimizerLink::newer_numbers() {
  const std::lock_guard lock(mutex_);
  if (!program_.is_attached() || !host_outdated_) return std::nullopt;
  return device_numbers();
}

bool OptimizerLink::bring_optimizer_state() {
  const std::lock_guard lock(mutex_);
  if (!program_.is_attached() || !host_outdated_ || optimizer_.state().pending(*this)) return false;
  if (optimizer_.keeps_state()) {
    log(LogLevel::debug, "Writing optimiser state tensors from IPU to host.");
  }
  const NotRecorded quiet;  // somebody may ask while another model is captured
  OptimizerStateDict values;
  const auto& states = program_.executable().states();
  for (size_t i = program_.weights(); i < states.size(); ++i) {
    const TensorType type = program_.executable().host_type(i);
    const at::Tensor tensor = at::empty(type.shape, scalar_type_of(type.dtype));
    program_.session().read_state(i, bytes_of(tensor));
    values.ipu_state.push_back({states[i].name, tensor});
  }
  values.ipu_param = device_numbers();
  for (const OptimizerGroup& group : optimizer_.groups()) values.groups.push_back(group.values);
  optimizer_.state().store(*this, std::move(values));
  host_outdated_ = false;
  return true;
}

// Also where only a part of the state was loaded: the rest stays as the device has it.
void OptimizerLink::send_state() {
  host_outdated_ = true;
  const auto pending = optimizer_.state().to_send(*this);
  if (!pending) return;
  if (optimizer_.keeps_state()) {
    log(LogLevel::debug, "Writing optimiser state tensors from host to IPU memory");
  }
  const NotRecorded quiet;
  const at::NoGradGuard no_grad;
  std::map<std::string_view, at::Tensor> given;
  for (const auto& [name, tensor] : pending->values.ipu_state) given[name] = tensor;
  const auto& states = program_.executable().states();
  std::vector<std::string> missing;
  std::vector<std::pair<size_t, at::Tensor>> writes;
  for (size_t i = program_.weights(); i < states.size(); ++i) {
    const auto at = given.find(states[i].name);
    if (at == given.end()) {
      // Between two calls these are empty anyway.
      if (states[i].kind != StateKind::accumulator) missing.push_back(states[i].name);
      continue;
    }
    const Shape wanted = program_.executable().host_type(i).shape;
    check(at->second.sizes() == wanted,
          "the optimiser's state '{}' that was loaded has shape {}, but that of this model has {}; "
          "load the state of an optimiser for the same model",
          states[i].name, to_string(shape_of(at->second)), to_string(wanted));
    const auto type = scalar_type_of(states[i].type.dtype);
    writes.emplace_back(i, at->second.to(at::kCPU, type).contiguous());
  }
  if (pending->numbers) {
    optimizer_.take_device_numbers(pending->values, updated_);
    for (const auto& [name, tensor] : pending->values.ipu_param) {
      loaded_numbers_[name] = tensor.item().toFloat();
    }
    send_hyperparameters();
  }
  for (const auto& [index, tensor] : writes)
    program_.session().write_state(index, bytes_of(tensor));
  optimizer_.state().sent();
  if (pending->loaded && !missing.empty()) {
    log(LogLevel::warn,
        "the optimiser state that was loaded has no {}; what the device has there is kept",
        fmt::join(missing, ", "));
  }
}

}  // namespace tessera
