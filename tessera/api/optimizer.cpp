#include "tessera/api/optimizer.h"

#include <torch/optim/sgd.h>

#include <cmath>

#include "tessera/base/error.h"

namespace tessera {
namespace {

void check_group(const OptimizerGroup& group) {
  const auto not_negative = [](const char* name, double value) {
    check(value >= 0, ErrorKind::value, "SGD's {} must not be negative, got {}", name, value);
  };
  not_negative("lr", group.lr);
  not_negative("momentum", group.momentum);
  not_negative("weight_decay", group.weight_decay);
  check(!group.nesterov || (group.momentum > 0 && group.dampening == 0), ErrorKind::value,
        "Nesterov momentum requires a momentum and zero dampening, got momentum {} and dampening "
        "{}",
        group.momentum, group.dampening);
}

std::vector<OptimizerGroup> groups_of(const torch::optim::Optimizer& optimizer) {
  std::vector<OptimizerGroup> groups;
  for (const auto& group : optimizer.param_groups()) {
    const auto* options = dynamic_cast<const torch::optim::SGDOptions*>(&group.options());
    check(options, ErrorKind::assertion,
          "Unsupported optimizer type: of LibTorch's optimisers torch::optim::SGD can be used");
    groups.push_back({group.params(), options->lr(), options->momentum(), options->dampening(),
                      options->weight_decay(), options->nesterov()});
  }
  return groups;
}

}  // namespace

Optimizer::Optimizer(std::vector<OptimizerGroup> groups) : groups_(std::move(groups)) {
  for (const OptimizerGroup& group : groups_) check_group(group);
}

Optimizer::Optimizer(const torch::optim::Optimizer& optimizer) : Optimizer(groups_of(optimizer)) {}

std::vector<std::pair<std::string, float>> Optimizer::hyperparameters() const {
  std::vector<std::pair<std::string, float>> numbers;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const OptimizerGroup& group = groups_[g];
    const auto add = [&](const char* name, double value) {
      numbers.emplace_back(fmt::format("{}.{}", name, g), static_cast<float>(value));
    };
    add("learning_rate", group.lr);
    add("momentum", group.momentum);
    add("dampening", group.dampening);
    add("weight_decay", group.weight_decay);
  }
  return numbers;
}

bool Optimizer::same_program(const Optimizer& other) const {
  if (groups_.size() != other.groups_.size()) return false;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const OptimizerGroup& a = groups_[g];
    const OptimizerGroup& b = other.groups_[g];
    if (a.nesterov != b.nesterov || (a.momentum != 0) != (b.momentum != 0)) return false;
    if (a.parameters.size() != b.parameters.size()) return false;
    for (size_t i = 0; i < a.parameters.size(); ++i) {
      if (!a.parameters[i].is_same(b.parameters[i])) return false;
    }
  }
  return true;
}

namespace optim {

SGD::SGD(std::vector<at::Tensor> parameters, SGDOptions options)
    : Optimizer({OptimizerGroup{std::move(parameters), options.lr, options.momentum,
                                options.dampening, options.weight_decay, options.nesterov}}) {}

}  // namespace optim
}  // namespace tessera
