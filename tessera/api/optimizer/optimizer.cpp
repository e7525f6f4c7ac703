#include "tessera/api/optimizer/optimizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/torch/convert.h"

namespace tessera {
namespace {

using Values = OptimizerValues;

bool is_set(const Values& values, const OptimizerFlag& flag) {
  return value_of(values, flag.name, flag.fallback ? 1 : 0) != 0;
}

bool is_wide(std::string_view name) {
  const auto& names = optimizer_wide_attributes();
  return std::find(names.begin(), names.end(), name) != names.end();
}

void check_values(const OptimizerKind& kind, const Values& values) {
  for (const OptimizerNumber& number : kind.numbers) {
    const auto at = values.find(number.name);
    check(at != values.end(), ErrorKind::value, "{}'s {} is missing", kind.name, number.name);
    if (number.name == "dampening") continue;
    check(at->second >= 0, ErrorKind::value, "{}'s {} must not be negative, got {}", kind.name,
          number.name, at->second);
    check(!number.below_one || at->second < 1, ErrorKind::value, "{}'s {} must be below 1, got {}",
          kind.name, number.name, at->second);
  }
  const double momentum = value_of(values, "momentum"), dampening = value_of(values, "dampening");
  check(value_of(values, "nesterov") == 0 || (momentum > 0 && dampening == 0), ErrorKind::value,
        "Nesterov momentum requires a momentum and zero dampening, got momentum {} and dampening "
        "{}",
        momentum, dampening);
  check(value_of(values, "amsgrad") == 0, ErrorKind::value,
        "{} with amsgrad=True is not supported; use amsgrad=False", kind.name);
}

// Sorts what a user's group holds: the optimiser's own, the rest by name only, and what belongs to
// the whole optimiser from there.
void settle(const OptimizerKind& kind, const Values& wide, OptimizerGroup& group) {
  const bool combined = value_of(wide, "use_combined_accum") != 0;
  const auto is_own = [&](std::string_view name) {
    if (is_wide(name)) return false;
    const auto is_named = [&](const auto& entry) { return entry.name == name; };
    return std::any_of(kind.numbers.begin(), kind.numbers.end(), is_named) ||
           std::any_of(kind.flags.begin(), kind.flags.end(), is_named) || name == "amsgrad" ||
           (combined && name == "velocity_scaling");
  };
  for (const auto& [name, value] : group.values) {
    if (!is_own(name)) group.others.push_back(name);
  }
  std::erase_if(group.values, [&](const auto& entry) { return !is_own(entry.first); });
  group.values.insert(wide.begin(), wide.end());
}

constexpr std::string_view loss_scaling_name = "lossScaling_FLOAT";

std::string specific_name(const DeviceNumber& number, std::string_view parameter) {
  return fmt::format("{}___specific___{}", number.prefix, parameter);
}

std::string type_name(double bits) { return bits == 16 ? "float16" : "float32"; }

}  // namespace

Optimizer::Optimizer(std::string_view kind_name, std::vector<OptimizerGroup> groups,
                     OptimizerSettings settings)
    : kind_(kind_name),
      groups_(std::move(groups)),
      settings_(std::move(settings)),
      state_(settings_.state ? settings_.state : std::make_shared<OptimizerState>()) {
  const OptimizerKind& kind = optimizer_kind(kind_name);
  const double max_grad_norm = wide_value("max_grad_norm", no_clipping);
  check(max_grad_norm >= 0, ErrorKind::value,
        "max_grad_norm must be a number that is not negative, got {}", max_grad_norm);
  check(loss_scaling() > 0 && std::isfinite(loss_scaling()), ErrorKind::value,
        "loss_scaling must be a number above zero, got {}", loss_scaling());
  for (OptimizerGroup& group : groups_) {
    settle(kind, settings_.values, group);
    check_values(kind, group.values);
    const auto centered = [](const OptimizerGroup& g) { return value_of(g.values, "centered"); };
    check(centered(group) == centered(groups_[0]), ErrorKind::assertion,
          "{}'s centered must be the same in all parameter groups", kind.name);
  }
}

VariableAttributes& Optimizer::variable_attrs() {
  check(settings_.variable.has_value(), ErrorKind::attribute,
        "variable_attrs: which attributes of PyTorch's {} are constant follows from their values; "
        "use the {} that comes with this library",
        kind_, kind_);
  return *settings_.variable;
}

double Optimizer::wide_value(std::string_view name, double fallback) const {
  return value_of(settings_.values, name, fallback);
}

// Only a combined accumulator has a scale of its own.
double Optimizer::velocity_scaling(const Values& values) const {
  const bool combined = wide_value("use_combined_accum", 0) != 0;
  return combined ? value_of(values, "velocity_scaling", 1) : wide_value("loss_scaling", 1);
}

bool Optimizer::is_constant(const OptimizerNumber& number, double value) const {
  if (settings_.variable) return settings_.variable->isConstant(number.attribute);
  if (number.rule == TorchRule::constant) return true;
  return number.rule == TorchRule::constant_at_default && value == number.fallback;
}

// Of what the whole optimiser has. PyTorch's has a scale only where the user put one there.
bool Optimizer::is_constant_wide(std::string_view attribute) const {
  if (settings_.variable) return settings_.variable->isConstant(attribute);
  return attribute != "loss_scaling" || loss_scaling() == 1;
}

DType Optimizer::wide_type(std::string_view attribute) const {
  return wide_value(attribute, 32) == 16 ? DType::f16 : DType::f32;
}

void Optimizer::compiled(bool automatic_loss_scaling) {
  compiled_ = made_program();
  if (!automatic_loss_scaling) return;
  for (auto& constants : compiled_->constants) constants.erase("loss_scaling");
}

Optimizer::Program Optimizer::made_program() const {
  const OptimizerKind& kind = optimizer_kind(kind_);
  Program program;
  program.update.clip_norm =
      wide_value("max_grad_norm", no_clipping) != no_clipping || !is_constant_wide("max_grad_norm");
  for (const OptimizerGroup& group : groups_) {
    auto& constants = program.constants.emplace_back();
    for (const OptimizerNumber& number : kind.numbers) {
      if (is_constant(number, value_of(group.values, number.name))) {
        constants.emplace(number.attribute);
      }
    }
    for (const std::string_view name : {"loss_scaling", "velocity_scaling", "max_grad_norm"}) {
      if (is_constant_wide(name)) constants.emplace(name);
    }
    UpdateSpec::Group& update = program.update.groups.emplace_back();
    const bool centered = value_of(group.values, "centered") != 0 && !kind.centered_op.empty();
    update.op = std::string(centered ? kind.centered_op : kind.op);
    update.velocity = value_of(group.values, "momentum") != 0 || !constants.contains("momentum");
    update.maximize = value_of(group.values, "maximize") != 0;
    update.as_parameters = wide_value("use_combined_accum", 0) != 0;
    update.accumulator = wide_type("accum_type");
    for (const auto& [operand, attribute] : kind.memories) {
      update.memories[std::string(operand)] = wide_type(attribute);
    }
    update.attrs = kind.attrs;
    for (const OptimizerFlag& flag : kind.flags) {
      if (!flag.attr.empty()) update.attrs.set(flag.attr, is_set(group.values, flag));
    }
  }
  return program;
}

std::vector<std::pair<std::string, double>> Optimizer::hyperparameters() const {
  std::vector<std::pair<std::string, double>> numbers = {
      {"max_grad_norm", wide_value("max_grad_norm", no_clipping)},
      {"loss_scaling", loss_scaling()}};
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const OptimizerNumber& number : optimizer_kind(kind_).numbers) {
      numbers.emplace_back(fmt::format("{}.{}", number.operand, g),
                           value_of(groups_[g].values, number.name));
    }
  }
  return numbers;
}

void Optimizer::take_program_of(const Optimizer& compiled) {
  const auto require = [](bool same, const std::string& what) {
    check(same, "setOptimizer: {} after the model was compiled; call destroy() first", what);
  };
  require(kind_ == compiled.kind_,
          fmt::format("the optimiser cannot change from {} to {}", compiled.kind_, kind_));
  require(groups_.size() == compiled.groups_.size(),
          fmt::format("the number of parameter groups cannot change from {} to {}",
                      compiled.groups_.size(), groups_.size()));
  for (const std::string_view attribute : optimizer_type_attributes()) {
    require(wide_type(attribute) == compiled.wide_type(attribute),
            fmt::format("'{}' cannot change", attribute));
  }
  const OptimizerKind& kind = optimizer_kind(kind_);
  Program program = compiled.current_program();
  const auto require_same = [&](size_t g, std::string_view attribute, double ours, double theirs) {
    check(ours == theirs || !program.constants[g].contains(attribute),
          "setOptimizer: {} of group {} is constant: it was {} when the model was compiled and "
          "cannot change to {}. Give it to the constructor of an optimiser of poptorch.optim, or "
          "call optimizer.variable_attrs.markAsVariable('{}'), before the model is compiled",
          attribute, g, theirs, ours, attribute);
  };
  for (size_t g = 0; g < groups_.size(); ++g) {
    const OptimizerGroup &ours = groups_[g], &theirs = compiled.groups_[g];
    for (const OptimizerFlag& flag : kind.flags) {
      require(is_set(ours.values, flag) == is_set(theirs.values, flag),
              fmt::format("'{}' of group {} cannot change", flag.name, g));
    }
    for (const OptimizerNumber& number : kind.numbers) {
      require_same(g, number.attribute, value_of(ours.values, number.name),
                   value_of(theirs.values, number.name));
    }
    if (wide_value("use_combined_accum", 0) != 0) {
      require_same(g, "velocity_scaling", velocity_scaling(ours.values),
                   compiled.velocity_scaling(theirs.values));
    }
    for (const std::string_view name : {"loss_scaling", "max_grad_norm"}) {
      const double fallback = name == "loss_scaling" ? 1 : no_clipping;
      require_same(g, name, wide_value(name, fallback), compiled.wide_value(name, fallback));
    }
  }
  compiled_ = std::move(program);
}

bool Optimizer::has_numbers_of(const Optimizer& other) const {
  const auto all_numbers = [](const Optimizer& optimizer) {
    std::vector<double> numbers;
    const auto add = [&](const Values& values) {
      for (const OptimizerNumber& number : optimizer_kind(optimizer.kind_).numbers) {
        numbers.push_back(value_of(values, number.name, number.fallback));
      }
      numbers.push_back(optimizer.velocity_scaling(values));
    };
    for (const OptimizerGroup& group : optimizer.groups_) add(group.values);
    add(optimizer.settings_.defaults);
    numbers.push_back(optimizer.wide_value("loss_scaling", 1));
    numbers.push_back(optimizer.wide_value("max_grad_norm", no_clipping));
    return numbers;
  };
  return kind_ == other.kind_ && all_numbers(*this) == all_numbers(other);
}

std::vector<std::pair<std::string, double>> Optimizer::device_numbers(const Names& names) const {
  const Program program = current_program();
  const bool combined = wide_value("use_combined_accum", 0) != 0;
  std::vector<std::pair<std::string, double>> numbers;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const bool velocity = program.update.groups[g].velocity;
    for (const DeviceNumber& number : optimizer_kind(kind_).device_numbers(velocity, combined)) {
      if (program.constants[g].contains(number.attribute)) continue;
      const double value = number.value(groups_[g].values);
      for (const std::string& name : names[g]) {
        numbers.emplace_back(specific_name(number, name), value);
      }
    }
  }
  if (!groups_.empty() && !program.constants[0].contains("loss_scaling")) {
    numbers.emplace_back(std::string(loss_scaling_name), wide_value("loss_scaling", 1));
  }
  return numbers;
}

// A program has one number for all parameters of a group, so a dictionary must not have several.
void Optimizer::check_device_numbers(const std::map<std::string_view, float>& numbers,
                                     const Names& names) const {
  const Program program = current_program();
  const bool combined = wide_value("use_combined_accum", 0) != 0;
  std::vector<std::string> missing;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const bool velocity = program.update.groups[g].velocity;
    for (const DeviceNumber& number : optimizer_kind(kind_).device_numbers(velocity, combined)) {
      if (program.constants[g].contains(number.attribute)) continue;
      std::optional<std::pair<std::string, float>> first;
      std::vector<std::string> absent;
      for (const std::string& name : names[g]) {
        const std::string full = specific_name(number, name);
        const auto at = numbers.find(full);
        if (at == numbers.end()) {
          absent.push_back(full);
          continue;
        }
        if (!first) first = {full, at->second};
        check(
            at->second == first->second, ErrorKind::value,
            "ipu_param of the state that was loaded has {} for '{}' but {} for '{}', which are in "
            "one parameter group and must have the same; load the state of an optimizer with the "
            "same groups",
            first->second, first->first, at->second, full);
      }
      const auto kept = static_cast<float>(number.value(groups_[g].values));
      check(absent.empty() || !first || first->second == kept, ErrorKind::value,
            "ipu_param of the state that was loaded has no '{}'; the others of its parameter group "
            "would change from {} to {} and it must change with them: load a whole state",
            absent.empty() ? "" : absent[0], kept, first ? first->second : 0);
      missing.insert(missing.end(), absent.begin(), absent.end());
    }
  }
  if (missing.empty() || numbers.empty()) return;
  log(LogLevel::warn,
      "ipu_param of the state that was loaded has no {}; what the device has there is kept",
      fmt::join(missing, ", "));
}

void Optimizer::take_device_numbers(const OptimizerStateDict& loaded, const Names& names) {
  std::map<std::string_view, float> numbers;
  for (const auto& [name, tensor] : loaded.ipu_param) {
    check(tensor.numel() == 1, ErrorKind::value,
          "ipu_param '{}' of the state that was loaded must be one number, but its shape is {}",
          name, to_string(shape_of(tensor)));
    numbers[name] = tensor.item().toFloat();
  }
  check_device_numbers(numbers, names);
  const auto is = [](double number, float wanted) { return static_cast<float>(number) == wanted; };
  if (const auto at = numbers.find(loss_scaling_name);
      at != numbers.end() && !is(wide_value("loss_scaling", 1), at->second)) {
    settings_.values["loss_scaling"] = at->second;
    for (OptimizerGroup& group : groups_) group.values["loss_scaling"] = at->second;
  }
  const Program program = current_program();
  const bool combined = wide_value("use_combined_accum", 0) != 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const bool velocity = program.update.groups[g].velocity;
    for (const DeviceNumber& number : optimizer_kind(kind_).device_numbers(velocity, combined)) {
      if (program.constants[g].contains(number.attribute)) continue;
      for (const std::string& name : names[g]) {
        const auto at = numbers.find(specific_name(number, name));
        if (at == numbers.end() || is(number.value(groups_[g].values), at->second)) continue;
        // The group that was loaded with it has the number in full.
        const bool in_full =
            g < loaded.groups.size() && is(number.value(loaded.groups[g]), at->second);
        number.apply(groups_[g].values,
                     in_full ? number.value(loaded.groups[g]) : static_cast<double>(at->second));
      }
    }
  }
}

void Optimizer::load_state_dict(OptimizerStateDict values) {
  check(!values.ipu_state.empty() || !values.ipu_param.empty() || !values.groups.empty(),
        ErrorKind::runtime, "Cannot load optimizer state dictionary because it is empty.");
  check(values.groups.empty() || values.groups.size() == groups_.size(), ErrorKind::value,
        "loaded state dict has {} parameter groups, the optimiser has {}", values.groups.size(),
        groups_.size());
  for (size_t g = 0; g < values.groups.size(); ++g) {
    for (const OptimizerNumber& number : optimizer_kind(kind_).numbers) {
      const auto at = values.groups[g].find(number.name);
      if (at != values.groups[g].end()) groups_[g].values[at->first] = at->second;
    }
  }
  state_->load(std::move(values));
}

std::vector<std::string> Optimizer::described() const {
  const OptimizerKind& kind = optimizer_kind(kind_);
  const Program program = current_program();
  const auto listed = [&](const Values& values, size_t group, bool defaults) {
    const auto mark = [&](std::string_view attribute) {
      const bool constant =
          group < program.constants.size() && program.constants[group].contains(attribute);
      return constant ? " (const)" : "";
    };
    std::string text;
    for (const OptimizerNumber& number : kind.numbers) {
      std::string name(number.spoken);
      if (defaults)
        name = fmt::format("default{}{}", static_cast<char>(name[0] - 'a' + 'A'), name.substr(1));
      text += fmt::format("{}={}{}, ", name, value_of(values, number.name, number.fallback),
                          mark(number.attribute));
    }
    if (kind.scaled_numbers) {
      const bool combined = wide_value("use_combined_accum", 0) != 0;
      text += fmt::format("{}={}{}, ", defaults ? "defaultVelocityScaling" : "velocityScaling",
                          velocity_scaling(values),
                          mark(combined ? "velocity_scaling" : "loss_scaling"));
    }
    return text;
  };
  const auto type = [&](std::string_view name, std::string_view other = {}) {
    return type_name(wide_value(name, wide_value(other, 32)));
  };
  std::vector<std::string> lines = {fmt::format(
      "graph optimizer with {}: {}accumType={}, firstOrderMomentumAccumType={}, "
      "secondOrderMomentumAccumType={}, lossScaling={}",
      kind_,
      listed(
          settings_.defaults.empty() && !groups_.empty() ? groups_[0].values : settings_.defaults,
          0, true),
      type("accum_type"), type("first_order_momentum_accum_type", "velocity_accum_type"),
      type("second_order_momentum_accum_type"), wide_value("loss_scaling", 1))};
  for (size_t g = 0; g < groups_.size(); ++g) {
    lines.push_back(fmt::format("group {} optimizer with {}: {}", g, kind_,
                                listed(groups_[g].values, g, false)));
    lines.back().resize(lines.back().size() - 2);
  }
  return lines;
}

}  // namespace tessera
