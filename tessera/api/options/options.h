// How a model is run: PopTorch's options in PopTorch's words. Setters return the object they belong
// to, so that they can be chained. Options that were given to a model or a data loader are frozen;
// clone() gives a copy that can be changed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/api/options/option_enums.h"
#include "tessera/api/options/option_group.h"
#include "tessera/api/options/option_groups.h"
#include "tessera/api/options/popart_options.h"
#include "tessera/runtime/output_mode.h"

namespace tessera {

// A tensor of the program that is kept for the user; see Options::anchorTensor.
struct AnchoredTensor {
  std::string long_name;                // in the program
  std::optional<OutputMode> mode = {};  // empty: that of the model's outputs
  int64_t period = 1;                   // the N of every_n
};

class Options : public OptionGroup {
 public:
  // Distributed where OpenMPI started the process; caches where POPTORCH_CACHE_DIR says so, and
  // offline where TESSERA_OFFLINE does; then what POPTORCH_DEFAULT_OPTIONS says, in the form of
  // from_json.
  Options();
  Options(const Options& other);  // an unfrozen copy
  Options& operator=(const Options& other);

  // Weight updates (training) or forward passes (inference) per call.
  Options& deviceIterations(int64_t iterations);
  // Data-parallel copies of the model. More than one is refused when a model is wrapped.
  Options& replicationFactor(int64_t replicas);
  // Groups of `size` replicas get the same inputs. To be called after replicationFactor.
  Options& inputReplicaGrouping(int64_t size, CommGroupType type);
  // Whether replicas share their buffers; only false can be had with several replicas.
  Options& broadcastBuffers(bool broadcast = true);
  // Which micro-batches' outputs a call returns; `period` is the N of every_n.
  Options& outputMode(OutputMode mode, std::optional<int64_t> period = std::nullopt);
  // Back to the default: the last one for training, all for inference.
  Options& resetOutputMode();
  bool defaultOutputMode() const { return !output_mode(); }
  // Round the number of devices up to a power of two where it is none, in place of an error.
  Options& autoRoundNumIPUs(bool round = true);
  // Recorded: {"IPU0": 0.6} is how much of a device's memory operators may use for a while.
  Options& setAvailableMemoryProportion(const std::map<std::string, double>& proportions);
  Options& connectionType(ConnectionType type);
  // Accepted: the program runs on the CPU either way. Wins over POPTORCH_IPU_MODEL.
  Options& useIpuModel(bool use);
  // Compile for a device that is not there: version 1, 2 or 21. The model cannot run.
  Options& useOfflineIpuTarget(int64_t version = 2);
  // Take the device of this number.
  Options& useIpuId(int64_t id);
  Options& syncPattern(SyncPattern pattern);
  // Fixes the program's random numbers; also seeds PyTorch, at once.
  Options& randomSeed(int64_t seed);
  // Keep compiled programs in this folder; std::nullopt: keep none.
  Options& enableExecutableCaching(const std::optional<std::string>& folder);
  Options& logDir(const std::string& folder);
  // The name of the model's part of the profile; "training" or "inference" where it is not set.
  Options& modelName(const std::string& name);
  // How often the same message is logged; nothing: always.
  Options& maxRepeatLogs(std::optional<int64_t> times);
  // Feed the program random numbers in place of the inputs, and return nothing that means anything.
  Options& enableSyntheticData(bool enabled);
  Options& enableStableNorm(bool enabled);
  Options& logCycleCount(bool log);
  Options& enableProfiling(const std::optional<std::string>& folder = std::nullopt);
  // Keep the tensor `long_name` for getAnchoredTensor(short_name). Frozen options take it too.
  void anchorTensor(const std::string& short_name, const std::string& long_name,
                    std::optional<OutputMode> mode = std::nullopt, int64_t period = 1);
  // The buffers that copyNamedBuffersToDevice sends.
  Options& updatableNamedBuffers(const std::vector<std::string>& names);
  // Unknown attributes of an optimiser are logged at level debug in place of a warning.
  Options& relaxOptimizerAttributesChecks(bool relax = true);
  Options& showCompilationProgressBar(bool show = true);
  // Names of operators say nothing of the module they came from.
  Options& disableModuleNamescope();
  // Files whose path holds one of these are never named as the user's line.
  Options& sourceLocationExcludes(const std::vector<std::string>& excludes);
  Options& appendToLocationExcludes(const std::vector<std::string>& excludes);
  // Leaves out algorithms that round more than the plain one does (Winograd's with tiles of 4x4).
  // TESSERA_PRECISION=precise or =fast says what holds where the program does not.
  Options& precise(bool precise = true);
  // Lets compiling time kernels where several could do the same work. Off by default: which kernel
  // wins, and with it the last bits of results, may then differ from one compilation to the next.
  Options& autotune(bool autotune = true);

  // Calls the setters that a JSON object names: {"deviceIterations": 2, "outputMode":
  // "OutputMode.All", "_Popart.set": ["enableOutlining", false]}. The items of a list are the
  // arguments of the setter.
  Options& from_json(std::string_view json);

  TrainingOptions& Training() { return training_; }
  const TrainingOptions& Training() const { return training_; }
  PrecisionOptions& Precision() { return precision_; }
  const PrecisionOptions& Precision() const { return precision_; }
  TensorLocationOptions& TensorLocations() { return tensor_locations_; }
  const TensorLocationOptions& TensorLocations() const { return tensor_locations_; }
  DistributedOptions& Distributed() { return distributed_; }
  const DistributedOptions& Distributed() const { return distributed_; }
  JitOptions& Jit() { return jit_; }
  const JitOptions& Jit() const { return jit_; }
  PopartOptions& Popart() { return popart_; }
  const PopartOptions& Popart() const { return popart_; }

  int64_t device_iterations() const { return integer("device_iterations"); }
  int64_t replication_factor() const { return integer("replication_factor"); }
  // Of all processes that train together.
  int64_t total_replicas() const { return replication_factor() * distributed_.numProcesses(); }
  int64_t input_group_size() const { return integer("input_group_size"); }
  CommGroupType input_group_type() const;
  bool broadcast_buffers() const { return flag("broadcast_buffers"); }
  std::optional<OutputMode> output_mode() const;  // empty: the default
  int64_t output_return_period() const { return integer("output_return_period"); }
  bool auto_round_num_ipus() const { return flag("auto_round_num_ipus"); }
  ConnectionType connection_type() const;
  std::optional<bool> use_ipu_model() const { return if_set<bool>("use_model"); }
  std::optional<int64_t> ipu_version() const { return if_set<int64_t>("ipu_version"); }
  std::optional<int64_t> ipu_id() const { return if_set<int64_t>("ipu_id"); }
  std::optional<int64_t> random_seed() const { return if_set<int64_t>("random_seed"); }
  std::optional<std::string> executable_cache() const;  // the folder, where caching is on
  const std::string& log_dir() const { return text("log_dir"); }
  std::optional<std::string> model_name() const { return if_set<std::string>("model_name"); }
  std::optional<int64_t> max_repeat_logs() const { return if_set<int64_t>("max_repeat_logs"); }
  bool synthetic_data() const;
  bool log_cycle_count() const;
  std::optional<std::string> profile_dir() const;  // where profiling is on
  std::map<std::string, AnchoredTensor> anchored_tensors() const;
  std::optional<std::vector<std::string>> updatable_named_buffers() const;
  bool relax_optimizer_attributes_checks() const { return flag("relax_optimizer_checks"); }
  bool show_compilation_progress_bar() const { return flag("show_compilation_progress_bar"); }
  bool module_namescope() const { return flag("module_namescope_enabled"); }
  std::vector<std::string> source_location_excludes() const;
  std::optional<bool> precise_results() const { return if_set<bool>("precise_results"); }
  std::optional<bool> autotuned() const { return if_set<bool>("autotuned"); }

  // Micro-batches in one call: what dimension 0 of every input is divided by.
  int64_t micro_batches() const;

  // Fails where options contradict each other, or name what does not exist. Called at compile.
  void check_for_compile() const;

  Options clone() const { return *this; }
  // Defaults alone, whatever the environment says: to fill with values that are known.
  static Options blank() { return Options(std::make_shared<bool>(false)); }
  void freeze() const { *frozen_flag() = true; }
  void unfreeze() { *frozen_flag() = false; }

  // Options(option=value, ..., Training=_TrainingOptions(...), ...)
  std::string to_string() const;
  bool operator==(const Options& other) const;

 private:
  explicit Options(std::shared_ptr<bool> frozen);

  PopartOptions popart_;
  TrainingOptions training_;
  PrecisionOptions precision_;
  TensorLocationOptions tensor_locations_;
  DistributedOptions distributed_;
  JitOptions jit_;
};

}  // namespace tessera
