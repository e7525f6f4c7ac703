// The optimisers of C++ programs. What is given may change after compiling, what is left out has
// its default and is constant; variable_attrs() says otherwise.
//
//   tessera::optim::SGD optimizer(model->parameters(), {.lr = 0.1, .momentum = 0.9});
//
// Types are torch::kFloat, which is their default, or torch::kHalf: `accum_type` that of the sum or
// mean of gradients over micro-batches, the others of what is remembered between updates.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "tessera/api/optimizer/optimizer.h"

namespace tessera::optim {

using Number = std::optional<double>;
using Betas = std::optional<std::array<double, 2>>;
using Type = at::ScalarType;

struct SGDOptions {
  double lr;
  Number momentum = {};      // 0
  Number dampening = {};     // 0
  Number weight_decay = {};  // 0
  bool nesterov = false;
  bool maximize = false;            // the loss
  Number loss_scaling = {};         // 1
  Number velocity_scaling = {};     // 1; only with use_combined_accum
  bool use_combined_accum = false;  // accumulators and velocities have their weight's type
  Type accum_type = at::kFloat;
  Type velocity_accum_type = at::kFloat;
  Number max_grad_norm = {};
};
struct AdamOptions {
  Number lr = {};            // 1e-3
  Betas betas = {};          // 0.9, 0.999
  Number eps = {};           // 1e-8
  Number weight_decay = {};  // 0
  bool maximize = false;
  Number loss_scaling = {};  // 1
  Type accum_type = at::kFloat;
  Type first_order_momentum_accum_type = at::kFloat;
  Type second_order_momentum_accum_type = at::kFloat;
  Number max_grad_norm = {};
};
struct AdamWOptions {
  Number lr = {};            // 1e-3
  Betas betas = {};          // 0.9, 0.999
  Number eps = {};           // 1e-8
  Number weight_decay = {};  // 1e-2
  bool bias_correction = true;
  bool maximize = false;
  Number loss_scaling = {};  // 1
  Type accum_type = at::kFloat;
  Type first_order_momentum_accum_type = at::kFloat;
  Type second_order_momentum_accum_type = at::kFloat;
  Number max_grad_norm = {};
};
struct RMSpropOptions {
  Number lr = {};            // 1e-2
  Number alpha = {};         // 0.99
  Number eps = {};           // 1e-8
  Number weight_decay = {};  // 0
  Number momentum = {};      // 0
  bool centered = false;
  bool use_tf_variant = false;
  bool maximize = false;
  Number loss_scaling = {};  // 1
  Type accum_type = at::kFloat;
  Type first_order_momentum_accum_type = at::kFloat;
  Type second_order_momentum_accum_type = at::kFloat;
};
struct LAMBOptions {
  Number lr = {};            // 1e-3
  Betas betas = {};          // 0.9, 0.999
  Number eps = {};           // 1e-8
  Number weight_decay = {};  // 1e-2
  bool bias_correction = true;
  Number max_weight_norm = {};  // 65500
  Number loss_scaling = {};     // 1
  Type accum_type = at::kFloat;
  Type first_order_momentum_accum_type = at::kFloat;
  Type second_order_momentum_accum_type = at::kFloat;
};

template <typename Options>
struct Group {
  std::vector<at::Tensor> parameters;
  Options options;
};

// One group of parameters, or several with numbers of their own; what belongs to the whole
// optimiser (loss_scaling, max_grad_norm, bias_correction, use_tf_variant, use_combined_accum and
// the types) is the first group's. A number that one group gives is variable in all.
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

}  // namespace tessera::optim
