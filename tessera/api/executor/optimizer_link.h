// The optimiser of a training program: the update that it puts into the program, its numbers and
// what it remembers, on the host and on the device. An inference program has one without groups.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/api/executor/model_access.h"
#include "tessera/api/executor/program.h"
#include "tessera/api/executor/replica_grouping.h"
#include "tessera/api/optimizer/attribute_tracker.h"
#include "tessera/api/optimizer/optimizer.h"
#include "tessera/api/options/options.h"
#include "tessera/passes/scale_loss.h"

namespace tessera {

class OptimizerLink : private OptimizerStateHolder {
 public:
  // Keeps references: `mutex` is the executor's, which others than its caller have to take.
  // Training without an optimiser uses SGD with a learning rate of 0.01 for all parameters.
  OptimizerLink(std::recursive_mutex& mutex, Purpose purpose, const ModelAccess& model,
                Options& options, Program& program, std::optional<Optimizer> optimizer);
  // From the first to the second it brings the device's values to who asks the optimiser for them.
  void open();
  void close();

  // Replaces it. Error for one that the program cannot go on with.
  void set(Optimizer optimizer);

  // Before a step is captured: one that is for all parameters has those that there are now.
  void follow_module();
  // Whether it has to scale the loss, or its gradients are counted for the log.
  bool looks_at_loss(const std::vector<NamedTensor>& inputs) const;
  // Whether gradients of halves are counted; where nobody says it, the log's level does.
  void count_gradients(bool count) { counts_gradients_ = count; }
  // Afterwards: its part of the step. Scaling renumbers the step's values, and comes first.
  void scale_loss(Capture& captured, int64_t gradient_accumulation);
  void add_update(Capture& captured, int64_t gradient_accumulation,
                  const ReplicaGroupings& groupings);
  const LossScale& loss_scale() const { return loss_scale_; }
  void clear();

  // Names and values of its numbers, as PopTorch's users know them; none of an inference program.
  std::vector<std::string> number_names() const;
  std::vector<double> numbers() const;

  void send_hyperparameters();
  // States of a new device begin as zero; those that must not be get their first values.
  void send_first_values();
  // What was loaded or kept, also where it is only a part: the rest stays as the device has it.
  void send_state();
  // The states that are not the module's, as a new device would begin with them.
  std::vector<at::Tensor> first_values() const;
  // Values for the same states from elsewhere: the device goes on with them.
  void restore(const std::function<std::span<const std::byte>(size_t state)>& value);
  // Values of the program's hyper-parameters, in their order.
  std::vector<double> hyperparameter_values() const;
  // The device's values where they are newer; true where they were.
  bool bring_state() { return bring_optimizer_state(); }
  bool has_loaded_state() const { return optimizer_.state().pending(*this); }
  bool is_shared() const { return optimizer_.is_shared(); }
  bool keeps_state() const { return optimizer_.keeps_state(); }
  // Somebody holds a snapshot of what it remembers, which a call is about to change.
  bool has_waiting() const { return optimizer_.state().has_waiting(); }
  void mark_host_outdated() { host_outdated_ = true; }

 private:
  bool bring_optimizer_state() override;
  std::optional<std::vector<NamedTensor>> newer_numbers() override;
  std::vector<NamedTensor> device_numbers() const;
  void check_same_parameters(const Optimizer& optimizer) const;
  void accept(const Optimizer& optimizer);
  void check_loss_scaling(const Optimizer& optimizer) const;
  bool counts_gradients() const;

  std::recursive_mutex& mutex_;
  const Purpose purpose_;
  const ModelAccess& model_;
  Options& options_;
  Program& program_;
  Optimizer optimizer_;
  AttributeTracker attributes_;
  bool is_default_ = false;                       // for all parameters, whichever they are
  Optimizer::Names grouped_;                      // the parameters of its groups, in the module
  Optimizer::Names updated_;                      // ... and in the program
  LossScale loss_scale_;                          // of the program
  std::map<std::string, double> loaded_numbers_;  // with a state; since then no other was set
  bool host_outdated_ = false;                    // the host's copy of its state
  std::optional<bool> counts_gradients_;
};

}  // namespace tessera
