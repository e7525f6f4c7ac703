// What an optimiser tells the program: which parameters are in which group, and the numbers of each
// group. The maths is a row of the operator table; the numbers are inputs of the program, so that
// changing one never compiles anew.
//
//   tessera::trainingModel(model, options, tessera::optim::Adam(model->parameters(), {.lr = 1e-3}))
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/passes/add_optimizer.h"

namespace torch::optim {
class Optimizer;
}

namespace tessera {

struct OptimizerGroup {
  std::vector<at::Tensor> parameters;
  // By PyTorch's names: lr, momentum, ...; a pair of betas is beta1 and beta2; flags are 0 or 1.
  // What the optimiser has no use for is ignored, since PyTorch's groups hold more than numbers.
  std::map<std::string, double> values;
};

constexpr double no_clipping = std::numeric_limits<double>::infinity();

class Optimizer {
 public:
  // `kind` is SGD, Adam, AdamW, RMSprop or LAMB. All gradients together are scaled down to a norm
  // of at most `max_grad_norm`.
  Optimizer(std::string_view kind, std::vector<OptimizerGroup> groups,
            double max_grad_norm = no_clipping);
  // PyTorch's SGD, Adam, AdamW and RMSprop as carriers of the same numbers. Error for any other.
  Optimizer(const torch::optim::Optimizer& optimizer);  // NOLINT: converts on purpose

  const std::vector<OptimizerGroup>& groups() const { return groups_; }

  // What the program must do: the groups in order, without their parameters' names.
  UpdateSpec program() const { return program_; }

  // (name of the program's hyper-parameter, value) for all groups.
  std::vector<std::pair<std::string, double>> hyperparameters() const;

  // Replaces `compiled` in a program that was made for it. Error where that would take another
  // program; it names what would have to change.
  void take_program_of(const Optimizer& compiled);

 private:
  std::string kind_;
  std::vector<OptimizerGroup> groups_;
  double max_grad_norm_;
  UpdateSpec program_;
};

namespace optim {

struct SGDOptions {
  double lr;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  double max_grad_norm = no_clipping;
};
struct AdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  double max_grad_norm = no_clipping;
};
struct AdamWOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool bias_correction = true;
  double max_grad_norm = no_clipping;
};
struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
  bool use_tf_variant = false;
};
struct LAMBOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool bias_correction = true;
  double max_weight_norm = 65500;
};

template <typename Options>
struct Group {
  std::vector<at::Tensor> parameters;
  Options options;
};

// One group of parameters, or several with numbers of their own; the greatest norm of the gradients
// is the first group's.
template <typename Options>
class Described : public Optimizer {
 public:
  Described(std::vector<at::Tensor> parameters, const Options& options);
  explicit Described(const std::vector<Group<Options>>& groups);
};

using SGD = Described<SGDOptions>;
using Adam = Described<AdamOptions>;
using AdamW = Described<AdamWOptions>;
using RMSprop = Described<RMSpropOptions>;
using LAMB = Described<LAMBOptions>;

}  // namespace optim
}  // namespace tessera
