// What an optimiser tells the program: which parameters are in which group, and the numbers of each
// group. The maths is a row of the operator table; the numbers are inputs of the program, so that
// changing one never compiles anew. Which of them may change after compiling is the optimiser's to
// say; what it remembers can be read, kept and loaded.
//
//   tessera::optim::Adam optimizer(model->parameters(), {.lr = 1e-3});
//   auto training = tessera::trainingModel(model, options, optimizer);
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/api/optimizer/optimizer_kinds.h"
#include "tessera/api/optimizer/optimizer_state.h"
#include "tessera/api/optimizer/variable_attributes.h"
#include "tessera/passes/add_optimizer.h"

namespace torch::optim {
class Optimizer;
}

namespace tessera {

struct OptimizerGroup {
  std::vector<at::Tensor> parameters;
  // What the optimiser has no use for is ignored, since PyTorch's groups hold more than numbers.
  OptimizerValues values;
  std::vector<std::string> others = {};  // names of entries that are no numbers
};

constexpr double no_clipping = std::numeric_limits<double>::infinity();

struct OptimizerSettings {
  OptimizerValues values = {};    // optimizer_wide_attributes()
  OptimizerValues defaults = {};  // of groups that do not say otherwise; only for the log
  std::vector<std::string> attributes = {};         // names of what else the user's object has
  std::optional<VariableAttributes> variable = {};  // none: the rules for PyTorch's optimisers
  std::shared_ptr<OptimizerState> state = {};       // none: it goes with the program
};

class Optimizer {
 public:
  // The names of each group's parameters in a program.
  using Names = std::vector<std::vector<std::string>>;

  // `kind` is SGD, Adam, AdamW, RMSprop or LAMB.
  Optimizer(std::string_view kind, std::vector<OptimizerGroup> groups,
            OptimizerSettings settings = {});
  // PyTorch's SGD, Adam, AdamW and RMSprop as carriers of the same numbers. Error for any other.
  Optimizer(const torch::optim::Optimizer& optimizer);  // NOLINT: converts on purpose

  const std::string& kind() const { return kind_; }
  const std::vector<OptimizerGroup>& groups() const { return groups_; }
  // For changing numbers; a program sees them after setOptimizer().
  std::vector<OptimizerGroup>& param_groups() { return groups_; }
  const OptimizerSettings& settings() const { return settings_; }

  // Which attributes may change once the model is compiled. Error for PyTorch's optimisers.
  VariableAttributes& variable_attrs();

  // What it remembers and its numbers; nothing before a program was compiled for it.
  std::optional<OptimizerStateDict> state_dict() const { return state_->read(); }
  // Takes the numbers at once; what it remembered goes to the device before the next run.
  void load_state_dict(OptimizerStateDict values);

  // Shared by all copies of this optimiser.
  OptimizerState& state() const { return *state_; }
  bool keeps_state() const { return settings_.state != nullptr; }
  bool is_shared() const { return state_.use_count() > 2; }  // by somebody else

  // What the program must do: the groups in order, without their parameters' names.
  UpdateSpec program() const { return current_program().update; }

  double loss_scaling() const { return wide_value("loss_scaling", 1); }
  // Whether a program has to multiply the loss: it is not one, or may become another.
  bool scales_loss() const { return loss_scaling() != 1 || !is_constant_wide("loss_scaling"); }

  // From now on this is the optimiser of a program: what is constant stays constant. With automatic
  // loss scaling the scale it begins with is not.
  void compiled(bool automatic_loss_scaling = false);

  // Replaces `compiled`, which has the same parameters, in the program that was made for it. Error
  // where that would take another program, or a constant would change; it names what.
  void take_program_of(const Optimizer& compiled);

  // (name of the program's hyper-parameter, value) for all groups.
  std::vector<std::pair<std::string, double>> hyperparameters() const;

  // True where a program would not see a difference.
  bool has_numbers_of(const Optimizer& other) const;

  // The numbers that may change, by the names that a state dictionary has.
  std::vector<std::pair<std::string, double>> device_numbers(const Names& names) const;
  // Takes those over that differ.
  void take_device_numbers(const OptimizerStateDict& loaded, const Names& names);

  // One line for the whole and one for each group; constants are marked.
  std::vector<std::string> described() const;

 private:
  struct Program {
    UpdateSpec update;
    std::vector<std::set<std::string, std::less<>>> constants;  // attributes, of each group
  };

  Program made_program() const;
  void check_device_numbers(const std::map<std::string_view, float>& numbers,
                            const Names& names) const;
  Program current_program() const { return compiled_ ? *compiled_ : made_program(); }
  bool is_constant(const OptimizerNumber& number, double value) const;
  bool is_constant_wide(std::string_view attribute) const;
  DType wide_type(std::string_view attribute) const;
  double wide_value(std::string_view name, double fallback) const;
  double velocity_scaling(const OptimizerValues& values) const;

  std::string kind_;
  std::vector<OptimizerGroup> groups_;
  OptimizerSettings settings_;
  std::shared_ptr<OptimizerState> state_;
  std::optional<Program> compiled_;
};

}  // namespace tessera
