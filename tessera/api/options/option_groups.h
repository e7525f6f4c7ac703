// The parts of Options: what opts.Training, opts.Precision and so on are. Setters return the part
// they belong to.
#pragma once

#include <c10/core/ScalarType.h>

#include <map>
#include <optional>
#include <string>

#include "tessera/api/options/option_enums.h"
#include "tessera/api/options/option_group.h"
#include "tessera/api/options/popart_options.h"

namespace tessera {

// How programs find a loss scale themselves: `automaticLossScalingSettings` of PopART.
struct AutomaticLossScaling {
  bool enabled = false;
  double bin_edge_location = 0.125;
  double threshold_upper_count_proportion = 1e-7;
  int64_t update_period = 1;
  bool products_only = false;  // of gradients, those of products and convolutions
};

class TrainingOptions : public OptionGroup {
 public:
  TrainingOptions(std::shared_ptr<bool> frozen, PopartOptions& popart);

  // Micro-batches per weight update.
  TrainingOptions& gradientAccumulation(int64_t micro_batches);
  // What becomes of the gradients of micro-batches and replicas: their mean or their sum.
  TrainingOptions& accumulationAndReplicationReductionType(ReductionType type);
  TrainingOptions& setMeanAccumulationAndReplicationReductionStrategy(
      MeanReductionStrategy strategy);
  TrainingOptions& setAutomaticLossScaling(bool enabled);
  // Replaces all options of convolutions, a partials type that was set before among them.
  TrainingOptions& setConvolutionDithering(bool enabled);

  int64_t gradient_accumulation() const { return integer("gradient_accumulation"); }
  ReductionType accumulation_and_replication_reduction_type() const;
  MeanReductionStrategy mean_accumulation_and_replication_reduction_strategy() const;
  bool automatic_loss_scaling() const;
  // Error for settings that have no meaning.
  AutomaticLossScaling automatic_loss_scaling_settings() const;

 private:
  PopartOptions& popart_;
};

class PrecisionOptions : public OptionGroup {
 public:
  PrecisionOptions(std::shared_ptr<bool> frozen, PopartOptions& popart);

  PrecisionOptions& enableFloatingPointExceptions(bool enabled);
  PrecisionOptions& enableStochasticRounding(bool enabled);
  // What products and convolutions of halves add up in: torch::kFloat or torch::kHalf.
  PrecisionOptions& setPartialsType(at::ScalarType type);
  // Gone from PopTorch: these only warn.
  PrecisionOptions& halfFloatCasting();
  PrecisionOptions& runningStatisticsAlwaysFloat(bool value);

  bool floating_point_exceptions() const;
  bool stochastic_rounding() const;
  // Of products and of convolutions, float where it was not set. Error where it is another word.
  at::ScalarType partials_type() const;
  at::ScalarType convolution_partials_type() const;

 private:
  PopartOptions& popart_;
};

// Where a kind of tensor is kept. All of it is recorded; a CPU has one memory.
class TensorLocationSettings : public OptionGroup {
 public:
  TensorLocationSettings();
  TensorLocationSettings(const TensorLocationSettings& other);

  TensorLocationSettings& useOnChipStorage(std::optional<bool> use = true);  // nothing: undecided
  TensorLocationSettings& useReplicatedTensorSharding(bool use = true);
  TensorLocationSettings& useIOTilesToLoad(bool use = true);
  TensorLocationSettings& useIOTilesToStore(bool use = true);
  TensorLocationSettings& minElementsForOffChip(int64_t elements);
  TensorLocationSettings& minElementsForReplicatedTensorSharding(int64_t elements);

  OptionDict to_dict() const;
};

class TensorLocationOptions : public OptionGroup {
 public:
  explicit TensorLocationOptions(std::shared_ptr<bool> frozen);

  // An even number from 32 to 192.
  TensorLocationOptions& numIOTiles(int64_t tiles);
  TensorLocationOptions& setActivationLocation(const TensorLocationSettings& location);
  TensorLocationOptions& setWeightLocation(const TensorLocationSettings& location);
  TensorLocationOptions& setOptimizerLocation(const TensorLocationSettings& location);
  TensorLocationOptions& setAccumulatorLocation(const TensorLocationSettings& location);
};

// Which process of how many this one is.
class DistributedOptions : public OptionGroup {
 public:
  // Reads the variables that OpenMPI sets for its processes.
  explicit DistributedOptions(std::shared_ptr<bool> frozen);

  DistributedOptions& configureProcessId(int64_t process_id, int64_t num_processes);
  DistributedOptions& setEnvVarNames(const std::string& var_num_processes,
                                     const std::string& var_process_id);
  DistributedOptions& disable();

  int64_t processId() const { return integer("distributed_process_id"); }
  int64_t numProcesses() const { return integer("num_distributed_processes"); }
};

class JitOptions : public OptionGroup {
 public:
  explicit JitOptions(std::shared_ptr<bool> frozen);

  // Gone from PopTorch: false only warns, true is refused.
  JitOptions& traceModel(bool trace);
};

}  // namespace tessera
