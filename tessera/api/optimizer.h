// What an optimiser tells the program: which parameters are in which group, and the numbers of each
// group. The maths is a row of the operator table; the numbers are inputs of the program, so that
// changing one never compiles anew.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace tessera {

struct OptimizerGroup {
  std::vector<at::Tensor> parameters;
  double lr = 0.01;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

class Optimizer {
 public:
  explicit Optimizer(std::vector<OptimizerGroup> groups);
  // PyTorch's SGD as a carrier of the same numbers. Error for any other optimiser.
  Optimizer(const torch::optim::Optimizer& optimizer);  // NOLINT: converts on purpose

  const std::vector<OptimizerGroup>& groups() const { return groups_; }

  // (name of the program's hyper-parameter, value) for all groups.
  std::vector<std::pair<std::string, float>> hyperparameters() const;

  // True where `other` can replace this one without a new program.
  bool same_program(const Optimizer& other) const;

 private:
  std::vector<OptimizerGroup> groups_;
};

namespace optim {

// tessera::optim::SGD(model->parameters(), {.lr = 0.001, .momentum = 0.9})
struct SGDOptions {
  double lr;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};
class SGD : public Optimizer {
 public:
  SGD(std::vector<at::Tensor> parameters, SGDOptions options);
};

}  // namespace optim
}  // namespace tessera
