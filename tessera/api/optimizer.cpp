#include "tessera/api/optimizer.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using Values = std::map<std::string, double>;

struct Number {
  std::string_view name;     // PyTorch's
  std::string_view operand;  // of the row, and so of the program's input
  bool below_one = false;
};
struct Flag {
  std::string_view name;
  std::string_view attr;  // of the row; none where the flag chooses the row
  bool fallback;
};
struct OptimizerKind {
  std::string_view name;
  std::string_view op;
  std::vector<Number> numbers;
  std::vector<Flag> flags = {};
  Attrs attrs = {};
  std::string_view centered_op = {};
};

const OptimizerKind& kind_of(std::string_view name) {
  static const Number lr{"lr", "learning_rate"};
  static const Number momentum{"momentum", "momentum"};
  static const Number decay{"weight_decay", "weight_decay"};
  static const Number eps{"eps", "eps"};
  static const Number beta1{"beta1", "beta1", true}, beta2{"beta2", "beta2", true};
  static const Flag bias_correction{"bias_correction", "bias_correction", true};
  static const std::vector<OptimizerKind> kinds = {
      {.name = "SGD",
       .op = "sgd",
       .numbers = {lr, momentum, {"dampening", "dampening"}, decay},
       .flags = {{"nesterov", "nesterov", false}}},
      {.name = "Adam",
       .op = "adam",
       .numbers = {lr, beta1, beta2, eps, decay},
       .attrs = {{"decoupled", false}}},
      {.name = "AdamW",
       .op = "adam",
       .numbers = {lr, beta1, beta2, eps, decay},
       .flags = {bias_correction},
       .attrs = {{"decoupled", true}}},
      {.name = "RMSprop",
       .op = "rmsprop",
       .numbers = {lr, {"alpha", "alpha"}, eps, decay, momentum},
       .flags = {{"centered", "", false}, {"use_tf_variant", "tf_variant", false}},
       .centered_op = "rmsprop_centered"},
      {.name = "LAMB",
       .op = "lamb",
       .numbers = {lr, beta1, beta2, eps, decay, {"max_weight_norm", "max_weight_norm"}},
       .flags = {bias_correction}},
  };
  for (const OptimizerKind& kind : kinds) {
    if (kind.name == name) return kind;
  }
  fail(ErrorKind::assertion, "Unsupported optimizer type {}: use SGD, Adam, AdamW, RMSprop or LAMB",
       name);
}

double value_of(const Values& values, std::string_view name, double fallback) {
  const auto at = values.find(std::string(name));
  return at == values.end() ? fallback : at->second;
}
bool is_set(const Values& values, const Flag& flag) {
  return value_of(values, flag.name, flag.fallback ? 1 : 0) != 0;
}

void check_values(const OptimizerKind& kind, const Values& values) {
  for (const Number& number : kind.numbers) {
    const auto at = values.find(std::string(number.name));
    check(at != values.end(), ErrorKind::value, "{}'s {} is missing", kind.name, number.name);
    if (number.name == "dampening") continue;
    check(at->second >= 0, ErrorKind::value, "{}'s {} must not be negative, got {}", kind.name,
          number.name, at->second);
    check(!number.below_one || at->second < 1, ErrorKind::value, "{}'s {} must be below 1, got {}",
          kind.name, number.name, at->second);
  }
  const double momentum = value_of(values, "momentum", 0);
  const double dampening = value_of(values, "dampening", 0);
  check(value_of(values, "nesterov", 0) == 0 || (momentum > 0 && dampening == 0), ErrorKind::value,
        "Nesterov momentum requires a momentum and zero dampening, got momentum {} and dampening "
        "{}",
        momentum, dampening);
  check(value_of(values, "amsgrad", 0) == 0, ErrorKind::value,
        "{} with amsgrad=True is not supported; use amsgrad=False", kind.name);
}

UpdateSpec::Group program_of(const OptimizerKind& kind, const Values& values) {
  UpdateSpec::Group group;
  const bool centered = value_of(values, "centered", 0) != 0 && !kind.centered_op.empty();
  group.op = std::string(centered ? kind.centered_op : kind.op);
  group.velocity = value_of(values, "momentum", 0) != 0;
  group.attrs = kind.attrs;
  for (const Flag& flag : kind.flags) {
    if (!flag.attr.empty()) group.attrs.set(flag.attr, is_set(values, flag));
  }
  return group;
}

// LibTorch's options as values; the kind that they belong to is given back.
std::string_view read_options(const torch::optim::OptimizerOptions& options, Values& values) {
  const auto read_adam = [&](const auto& adam) {
    values = {{"lr", adam.lr()},
              {"beta1", std::get<0>(adam.betas())},
              {"beta2", std::get<1>(adam.betas())},
              {"eps", adam.eps()},
              {"weight_decay", adam.weight_decay()},
              {"amsgrad", adam.amsgrad()}};
  };
  if (const auto* sgd = dynamic_cast<const torch::optim::SGDOptions*>(&options)) {
    values = {{"lr", sgd->lr()},
              {"momentum", sgd->momentum()},
              {"dampening", sgd->dampening()},
              {"weight_decay", sgd->weight_decay()},
              {"nesterov", sgd->nesterov()}};
    return "SGD";
  }
  if (const auto* adam = dynamic_cast<const torch::optim::AdamOptions*>(&options)) {
    read_adam(*adam);
    return "Adam";
  }
  if (const auto* adamw = dynamic_cast<const torch::optim::AdamWOptions*>(&options)) {
    read_adam(*adamw);
    return "AdamW";
  }
  if (const auto* rmsprop = dynamic_cast<const torch::optim::RMSpropOptions*>(&options)) {
    values = {{"lr", rmsprop->lr()},
              {"alpha", rmsprop->alpha()},
              {"eps", rmsprop->eps()},
              {"weight_decay", rmsprop->weight_decay()},
              {"momentum", rmsprop->momentum()},
              {"centered", rmsprop->centered()}};
    return "RMSprop";
  }
  fail(ErrorKind::assertion,
       "Unsupported optimizer type: of LibTorch's optimisers SGD, Adam, AdamW and RMSprop can be "
       "used");
}

Optimizer converted(const torch::optim::Optimizer& optimizer) {
  std::string_view kind = "SGD";
  std::vector<OptimizerGroup> groups;
  for (const auto& group : optimizer.param_groups()) {
    groups.push_back({group.params(), {}});
    kind = read_options(group.options(), groups.back().values);
  }
  return Optimizer(kind, std::move(groups));
}

}  // namespace

Optimizer::Optimizer(std::string_view kind_name, std::vector<OptimizerGroup> groups,
                     double max_grad_norm)
    : kind_(kind_name), groups_(std::move(groups)), max_grad_norm_(max_grad_norm) {
  const OptimizerKind& kind = kind_of(kind_name);
  check(max_grad_norm >= 0, ErrorKind::value, "max_grad_norm must not be negative, got {}",
        max_grad_norm);
  program_.clip_norm = max_grad_norm != no_clipping;
  for (const OptimizerGroup& group : groups_) {
    check_values(kind, group.values);
    program_.groups.push_back(program_of(kind, group.values));
    check(program_.groups[0].op == program_.groups.back().op, ErrorKind::assertion,
          "{}'s centered must be the same in all parameter groups", kind.name);
  }
}

Optimizer::Optimizer(const torch::optim::Optimizer& optimizer) : Optimizer(converted(optimizer)) {}

std::vector<std::pair<std::string, double>> Optimizer::hyperparameters() const {
  std::vector<std::pair<std::string, double>> numbers = {{"max_grad_norm", max_grad_norm_}};
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const Number& number : kind_of(kind_).numbers) {
      numbers.emplace_back(fmt::format("{}.{}", number.operand, g),
                           value_of(groups_[g].values, number.name, 0));
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
  require(!program_.clip_norm || compiled.program_.clip_norm,
          "max_grad_norm cannot be switched on");
  for (size_t g = 0; g < groups_.size(); ++g) {
    const OptimizerGroup &ours = groups_[g], &theirs = compiled.groups_[g];
    require(std::equal(ours.parameters.begin(), ours.parameters.end(), theirs.parameters.begin(),
                       theirs.parameters.end(),
                       [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); }),
            fmt::format("the parameters of group {} cannot change", g));
    for (const Flag& flag : kind_of(kind_).flags) {
      require(is_set(ours.values, flag) == is_set(theirs.values, flag),
              fmt::format("'{}' of group {} cannot change", flag.name, g));
    }
    require(!program_.groups[g].velocity || compiled.program_.groups[g].velocity,
            fmt::format("group {} cannot get a momentum", g));
  }
  program_ = compiled.program_;  // it may hold a momentum or clipping that is switched off now
}

namespace optim {
namespace {

Values values_of(const SGDOptions& o) {
  return {{"lr", o.lr},
          {"momentum", o.momentum},
          {"dampening", o.dampening},
          {"weight_decay", o.weight_decay},
          {"nesterov", o.nesterov}};
}
template <typename AdamLike>
Values values_of(const AdamLike& o) {
  Values values = {{"lr", o.lr},
                   {"beta1", o.betas[0]},
                   {"beta2", o.betas[1]},
                   {"eps", o.eps},
                   {"weight_decay", o.weight_decay}};
  if constexpr (requires { o.bias_correction; }) values["bias_correction"] = o.bias_correction;
  if constexpr (requires { o.max_weight_norm; }) values["max_weight_norm"] = o.max_weight_norm;
  return values;
}
Values values_of(const RMSpropOptions& o) {
  return {{"lr", o.lr},
          {"alpha", o.alpha},
          {"eps", o.eps},
          {"weight_decay", o.weight_decay},
          {"momentum", o.momentum},
          {"centered", o.centered},
          {"use_tf_variant", o.use_tf_variant}};
}

std::string_view name_of(const SGDOptions&) { return "SGD"; }
std::string_view name_of(const AdamOptions&) { return "Adam"; }
std::string_view name_of(const AdamWOptions&) { return "AdamW"; }
std::string_view name_of(const RMSpropOptions&) { return "RMSprop"; }
std::string_view name_of(const LAMBOptions&) { return "LAMB"; }

template <typename Options>
Optimizer described(const std::vector<Group<Options>>& groups) {
  check(!groups.empty(), ErrorKind::value, "an optimiser needs a group of parameters");
  std::vector<OptimizerGroup> converted;
  for (const auto& group : groups) {
    converted.push_back({group.parameters, values_of(group.options)});
  }
  const Options& first = groups[0].options;
  double max_grad_norm = no_clipping;
  if constexpr (requires { first.max_grad_norm; }) max_grad_norm = first.max_grad_norm;
  return Optimizer(name_of(first), std::move(converted), max_grad_norm);
}

}  // namespace

template <typename Options>
Described<Options>::Described(std::vector<at::Tensor> parameters, const Options& options)
    : Described(std::vector<Group<Options>>{{std::move(parameters), options}}) {}

template <typename Options>
Described<Options>::Described(const std::vector<Group<Options>>& groups)
    : Optimizer(described(groups)) {}

template class Described<SGDOptions>;
template class Described<AdamOptions>;
template class Described<AdamWOptions>;
template class Described<RMSpropOptions>;
template class Described<LAMBOptions>;

}  // namespace optim
}  // namespace tessera
