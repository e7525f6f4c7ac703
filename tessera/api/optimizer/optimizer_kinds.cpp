#include "tessera/api/optimizer/optimizer_kinds.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using Values = OptimizerValues;

constexpr OptimizerNumber learning_rate(double fallback) {
  return {"lr", "learning_rate", "learningRate", fallback, TorchRule::variable, "lr"};
}
constexpr OptimizerNumber beta(std::string_view name, double fallback) {
  return {name, name, name, fallback, TorchRule::constant, "betas", true};
}
constexpr OptimizerNumber plain(std::string_view name, std::string_view spoken,
                                double fallback = 0) {
  return {name, name, spoken, fallback, TorchRule::constant_at_default, name};
}
constexpr OptimizerNumber decay(double fallback = 0) {
  return plain("weight_decay", "weightDecay", fallback);
}
constexpr OptimizerNumber momentum = plain("momentum", "momentum");
constexpr OptimizerNumber eps = plain("eps", "eps", 1e-8);
constexpr OptimizerFlag bias_correction{"bias_correction", "bias_correction", true};
constexpr OptimizerFlag maximize{"maximize", ""};

DeviceNumber same_as(std::string_view prefix, std::string_view name, std::string_view attribute) {
  return {prefix, attribute, [name](const Values& values) { return value_of(values, name); },
          [name](Values& values, double number) { values[std::string(name)] = number; }};
}

double loss_scale(const Values& values) { return value_of(values, "loss_scaling", 1); }
double velocity_scale(const Values& values) { return value_of(values, "velocity_scaling", 1); }

// Stochastic gradient descent without, with a combined (1) and with a separate (2) velocity.
const std::vector<DeviceNumber>& numbers_without_velocity() {
  static const std::vector<DeviceNumber> numbers = {
      {"scaledLearningRate0", "lr",
       [](const Values& v) { return value_of(v, "lr") / loss_scale(v); },
       [](Values& v, double number) { v["lr"] = number * loss_scale(v); }},
      {"weightDecayScaleFactor0", "weight_decay",
       [](const Values& v) { return 1 - value_of(v, "lr") * value_of(v, "weight_decay"); },
       [](Values& v, double number) {
         if (value_of(v, "lr") != 0) v["weight_decay"] = (1 - number) / value_of(v, "lr");
       }},
  };
  return numbers;
}

const std::vector<DeviceNumber>& numbers_with_combined_velocity() {
  static const std::vector<DeviceNumber> numbers = {
      {"scaledLearningRate1", "lr",
       [](const Values& v) { return value_of(v, "lr") / velocity_scale(v); },
       [](Values& v, double number) { v["lr"] = number * velocity_scale(v); }},
      {"weightDecayScaleFactor1", "weight_decay",
       [](const Values& v) { return value_of(v, "weight_decay") * velocity_scale(v); },
       [](Values& v, double number) { v["weight_decay"] = number / velocity_scale(v); }},
      same_as("scaledMomentum1", "momentum", "momentum"),
      {"dampeningScaleFactor1", "dampening",
       [](const Values& v) {
         return (1 - value_of(v, "dampening")) * velocity_scale(v) / loss_scale(v);
       },
       [](Values& v, double number) {
         v["dampening"] = 1 - number * loss_scale(v) / velocity_scale(v);
       }},
  };
  return numbers;
}

const std::vector<DeviceNumber>& numbers_with_velocity() {
  static const std::vector<DeviceNumber> numbers = {
      same_as("scaledLearningRate2", "lr", "lr"),
      same_as("weightDecayScaleFactor2", "weight_decay", "weight_decay"),
      same_as("scaledMomentum2", "momentum", "momentum"),
      {"dampeningScaleFactor2", "dampening",
       [](const Values& v) { return (1 - value_of(v, "dampening")) / loss_scale(v); },
       [](Values& v, double number) { v["dampening"] = 1 - number * loss_scale(v); }},
  };
  return numbers;
}

const std::vector<DeviceNumber>& sgd_numbers(bool velocity, bool combined) {
  if (!velocity) return numbers_without_velocity();
  return combined ? numbers_with_combined_velocity() : numbers_with_velocity();
}

using Memories = std::vector<std::pair<std::string_view, std::string_view>>;

const Memories& moments() {
  static const Memories both = {{"first_moment", "first_order_momentum_accum_type"},
                                {"second_moment", "second_order_momentum_accum_type"}};
  return both;
}

const std::vector<OptimizerKind>& kinds() {
  static const std::vector<OptimizerKind> all = {
      {.name = "SGD",
       .op = "sgd",
       .numbers = {learning_rate(0), momentum, plain("dampening", "dampening"), decay()},
       .flags = {{"nesterov", "nesterov"}, maximize},
       .memories = {{"velocity", "velocity_accum_type"}},
       .others = {"loss_scaling", "velocity_scaling", "use_combined_accum", "accum_type",
                  "velocity_accum_type", "max_grad_norm"},
       .scaled_numbers = &sgd_numbers},
      {.name = "Adam",
       .op = "adam",
       .numbers = {learning_rate(1e-3), beta("beta1", 0.9), beta("beta2", 0.999), eps, decay()},
       .flags = {maximize},
       .attrs = {{"decoupled", false}},
       .memories = moments(),
       .others = {"amsgrad", "loss_scaling", "accum_type", "first_order_momentum_accum_type",
                  "second_order_momentum_accum_type", "max_grad_norm"}},
      {.name = "AdamW",
       .op = "adam",
       .numbers = {learning_rate(1e-3), beta("beta1", 0.9), beta("beta2", 0.999), eps, decay(1e-2)},
       .flags = {bias_correction, maximize},
       .attrs = {{"decoupled", true}},
       .memories = moments(),
       .others = {"amsgrad", "loss_scaling", "accum_type", "first_order_momentum_accum_type",
                  "second_order_momentum_accum_type", "max_grad_norm"}},
      {.name = "RMSprop",
       .op = "rmsprop",
       .numbers = {learning_rate(1e-2),
                   {"alpha", "alpha", "alpha", 0.99, TorchRule::constant, "alpha"},
                   eps,
                   decay(),
                   momentum},
       .flags = {{"centered", ""}, {"use_tf_variant", "tf_variant"}, maximize},
       .centered_op = "rmsprop_centered",
       .memories = {{"mean_square", "first_order_momentum_accum_type"},
                    {"mean_gradient", "second_order_momentum_accum_type"},
                    {"momentum_buffer", "second_order_momentum_accum_type"}},
       .others = {"loss_scaling", "accum_type", "first_order_momentum_accum_type",
                  "second_order_momentum_accum_type"}},
      {.name = "LAMB",
       .op = "lamb",
       .numbers = {learning_rate(1e-3), beta("beta1", 0.9), beta("beta2", 0.999), eps, decay(1e-2),
                   plain("max_weight_norm", "maxWeightNorm", 65500)},
       .flags = {bias_correction, maximize},
       .memories = moments(),
       .others = {"loss_scaling", "accum_type", "first_order_momentum_accum_type",
                  "second_order_momentum_accum_type"}},
  };
  return all;
}

}  // namespace

double value_of(const OptimizerValues& values, std::string_view name, double fallback) {
  const auto at = values.find(name);
  return at == values.end() ? fallback : at->second;
}

std::vector<std::string> OptimizerKind::attributes() const {
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  };
  for (const OptimizerNumber& number : numbers) add(number.attribute);
  for (const OptimizerFlag& flag : flags) add(flag.name);
  for (const std::string_view other : others) add(other);
  return names;
}

const std::vector<DeviceNumber>& OptimizerKind::device_numbers(bool velocity, bool combined) const {
  if (scaled_numbers) return scaled_numbers(velocity, combined);
  static const auto by_kind = [] {
    std::map<std::string_view, std::vector<DeviceNumber>> made;
    for (const OptimizerKind& kind : kinds()) {
      for (const OptimizerNumber& number : kind.numbers) {
        made[kind.name].push_back(same_as(number.spoken, number.name, number.attribute));
      }
    }
    return made;
  }();
  return by_kind.at(name);
}

const OptimizerKind& optimizer_kind(std::string_view name) {
  for (const OptimizerKind& kind : kinds()) {
    if (kind.name == name) return kind;
  }
  fail(ErrorKind::assertion, "Unsupported optimizer type {}: use SGD, Adam, AdamW, RMSprop or LAMB",
       name);
}

const std::vector<std::string_view>& optimizer_type_attributes() {
  static const std::vector<std::string_view> names = {"accum_type", "velocity_accum_type",
                                                      "first_order_momentum_accum_type",
                                                      "second_order_momentum_accum_type"};
  return names;
}

const std::vector<std::string_view>& optimizer_wide_attributes() {
  static const auto names = [] {
    std::vector<std::string_view> all = {"loss_scaling", "max_grad_norm", "bias_correction",
                                         "use_tf_variant", "use_combined_accum"};
    const auto& types = optimizer_type_attributes();
    all.insert(all.end(), types.begin(), types.end());
    return all;
  }();
  return names;
}

}  // namespace tessera
