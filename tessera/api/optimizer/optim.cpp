#include "tessera/api/optimizer/optim.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <set>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using Values = OptimizerValues;

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

Optimizer::Optimizer(const torch::optim::Optimizer& optimizer) : Optimizer(converted(optimizer)) {}

namespace optim {
namespace {

// Options as values; what is left out gets its kind's default.
class Reader {
 public:
  explicit Reader(const OptimizerKind& kind) : kind_(kind) {}

  void number(std::string_view name, const Number& given, std::string_view attribute = {}) {
    if (given) given_.emplace(attribute.empty() ? name : attribute);
    for (const OptimizerNumber& known : kind_.numbers) {
      if (known.name == name) values_[std::string(name)] = given.value_or(known.fallback);
    }
  }
  void betas(const Betas& given) {
    number("beta1", given ? Number((*given)[0]) : Number(), "betas");
    number("beta2", given ? Number((*given)[1]) : Number(), "betas");
  }
  void flag(std::string_view name, bool value) { values_[std::string(name)] = value ? 1 : 0; }
  void wide(std::string_view name, const Number& given, double fallback) {
    if (given) given_.emplace(name);
    wide_[std::string(name)] = given.value_or(fallback);
  }

  void type(std::string_view name, at::ScalarType given) {
    check(given == at::kFloat || given == at::kHalf, ErrorKind::value,
          "{} must be torch::kFloat or torch::kHalf, not {}", name, c10::toString(given));
    wide_[std::string(name)] = given == at::kHalf ? 16 : 32;
  }

  template <typename Options>
  void read(const Options& o) {
    if constexpr (requires { o.momentum; }) number("momentum", o.momentum);
    if constexpr (requires { o.dampening; }) number("dampening", o.dampening);
    if constexpr (requires { o.betas; }) betas(o.betas);
    if constexpr (requires { o.alpha; }) number("alpha", o.alpha);
    if constexpr (requires { o.eps; }) number("eps", o.eps);
    if constexpr (requires { o.max_weight_norm; }) number("max_weight_norm", o.max_weight_norm);
    if constexpr (requires { o.nesterov; }) flag("nesterov", o.nesterov);
    if constexpr (requires { o.centered; }) flag("centered", o.centered);
    if constexpr (requires { o.maximize; }) flag("maximize", o.maximize);
    if constexpr (requires { o.max_grad_norm; }) {
      wide("max_grad_norm", o.max_grad_norm, no_clipping);
    }
    if constexpr (requires { o.bias_correction; }) {
      wide_["bias_correction"] = o.bias_correction ? 1 : 0;
    }
    if constexpr (requires { o.use_tf_variant; }) {
      wide_["use_tf_variant"] = o.use_tf_variant ? 1 : 0;
    }
    if constexpr (requires { o.use_combined_accum; }) {
      wide_["use_combined_accum"] = o.use_combined_accum ? 1 : 0;
      if (o.use_combined_accum) values_["velocity_scaling"] = o.velocity_scaling.value_or(1);
      if (o.velocity_scaling) given_.emplace("velocity_scaling");
    }
    if constexpr (requires { o.velocity_accum_type; }) {
      type("velocity_accum_type", o.velocity_accum_type);
    }
    if constexpr (requires { o.first_order_momentum_accum_type; }) {
      type("first_order_momentum_accum_type", o.first_order_momentum_accum_type);
      type("second_order_momentum_accum_type", o.second_order_momentum_accum_type);
    }
    type("accum_type", o.accum_type);
    number("lr", o.lr);
    number("weight_decay", o.weight_decay);
    wide("loss_scaling", o.loss_scaling, 1);
  }

  const Values& values() const { return values_; }
  const Values& wide_values() const { return wide_; }
  const std::set<std::string>& given() const { return given_; }

 private:
  const OptimizerKind& kind_;
  Values values_, wide_;
  std::set<std::string> given_;
};

std::string_view name_of(const SGDOptions&) { return "SGD"; }
std::string_view name_of(const AdamOptions&) { return "Adam"; }
std::string_view name_of(const AdamWOptions&) { return "AdamW"; }
std::string_view name_of(const RMSpropOptions&) { return "RMSprop"; }
std::string_view name_of(const LAMBOptions&) { return "LAMB"; }

template <typename Options>
Optimizer made_of(const std::vector<Group<Options>>& groups) {
  check(!groups.empty(), ErrorKind::value, "an optimiser needs a group of parameters");
  const OptimizerKind& kind = optimizer_kind(name_of(groups[0].options));
  OptimizerSettings settings;
  std::set<std::string> given;
  std::vector<OptimizerGroup> converted;
  for (const auto& group : groups) {
    Reader reader(kind);
    reader.read(group.options);
    if (converted.empty()) settings.values = reader.wide_values();
    given.insert(reader.given().begin(), reader.given().end());
    converted.push_back({group.parameters, reader.values()});
  }
  settings.variable.emplace(std::vector<std::string>(given.begin(), given.end()),
                            kind.attributes());
  settings.state = std::make_shared<OptimizerState>();
  return Optimizer(kind.name, std::move(converted), std::move(settings));
}

}  // namespace

template <typename Options>
Described<Options>::Described(std::vector<at::Tensor> parameters, const Options& options)
    : Described(std::vector<Group<Options>>{{std::move(parameters), options}}) {}

template <typename Options>
Described<Options>::Described(const std::vector<Group<Options>>& groups)
    : Optimizer(made_of(groups)) {}

template class Described<SGDOptions>;
template class Described<AdamOptions>;
template class Described<AdamWOptions>;
template class Described<RMSpropOptions>;
template class Described<LAMBOptions>;

}  // namespace optim
}  // namespace tessera
