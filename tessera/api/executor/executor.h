// Runs a model as one static program: compiles it at the first call, keeps its weights on the
// device, moves them to the host only when somebody needs them there. C++ and Python front ends are
// thin layers over this.
//
// Its parts: a Program, which is the compiled step and the device; a WeightsLink between the
// module's weights and the program's; an OptimizerLink between the user's optimiser and the
// program's update. The executor says in which order they act, under one lock.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tessera/api/executor/model_access.h"
#include "tessera/api/executor/optimizer_link.h"
#include "tessera/api/executor/perf_counters.h"
#include "tessera/api/executor/program.h"
#include "tessera/api/executor/replica_grouping.h"
#include "tessera/api/executor/saved_model.h"
#include "tessera/api/executor/weights_link.h"
#include "tessera/api/optimizer/optimizer.h"
#include "tessera/api/options/options.h"
#include "tessera/device/registry.h"
#include "tessera/dist/link.h"

namespace tessera {

class Executor {
 public:
  // Training without an optimiser uses SGD with a learning rate of 0.01.
  Executor(Purpose purpose, ModelAccess model, const Options& options,
           std::optional<Optimizer> optimizer = std::nullopt);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // One call: all micro-batches, in the layout of the data loader. Returns what forward returned.
  std::vector<at::Tensor> run(const std::vector<NamedTensor>& inputs);

  // The same for a compiled program, without names and with little around the step itself. Nothing
  // happens, and nothing is returned, where it was not compiled or for another number of inputs.
  std::optional<std::vector<at::Tensor>> run_again(c10::ArrayRef<at::Tensor> inputs);

  // A call while another model is captured: `forward`, over this model's module, becomes a part of
  // the other's program, with the weights that this model has now. Error for a training executor,
  // for one in its own forward, and for options that another program cannot follow.
  std::vector<at::Tensor> run_inside(const std::vector<NamedTensor>& inputs, Forward forward);

  // Error where a call would be part of a forward that is being captured.
  static void check_callable();

  // Gives each group of `shards` replicas a value of its own for a parameter, of which dimension 0
  // counts the groups; forward does not see that dimension. To be called before compiling.
  void replicaGrouping(const std::string& parameter, CommGroupType type, int64_t shards,
                       VariableRetrievalMode mode);

  // Compiles for these inputs. A second time it warns and does nothing.
  void compile(const std::vector<NamedTensor>& inputs);

  // Writes the compiled program with the values of its states, its example inputs and where its
  // random numbers are. The file is whole or as it was before; Error where it cannot be written.
  void save(const std::string& path, const SaveRequest& request = {});

  // Takes the program of the file in place of compiling: the model is captured with the file's
  // inputs, and Error where that is not the file's program. Weights are the module's; random
  // numbers go on as in the file; what the optimiser remembers is the file's where that is asked
  // for.
  void loadExecutable(std::shared_ptr<const SavedModel> saved, bool with_optimizer_state = false);
  void loadExecutable(const std::string& path);
  // The same at the next compilation, for inputs that are not known yet.
  void load_when_compiled(std::shared_ptr<const SavedModel> saved,
                          bool with_optimizer_state = false);

  bool isCompiled() const { return program_.is_compiled(); }
  bool isAttachedToDevice() const { return program_.is_attached(); }
  void attachToDevice();
  void detachFromDevice();
  void destroy();

  void copyWeightsToHost();
  void copyWeightsToDevice();
  // True where a copy happened.
  bool copyWeightsToHostIfNeeded() { return weights_.copy_to_host_if_needed(); }
  bool host_is_outdated() const {
    return weights_.host_is_outdated();
  }  // the device has newer ones
  // The module has other parameters or buffers than before: they are looked up before the next run,
  // and go to the device then.
  void weights_were_replaced() { weights_.were_replaced(); }
  // The buffers that Options::updatableNamedBuffers names, and nothing else.
  void copyNamedBuffersToDevice();

  void setOptimizer(Optimizer optimizer) { optimizer_.set(std::move(optimizer)); }

  const Options& options() const { return options_; }
  Purpose purpose() const { return purpose_; }

  // Where random numbers are: the seed and, once the program ran, how far it is. Nothing before
  // the first run of a model without a seed. Setting a seed alone starts anew from it.
  std::optional<std::vector<int64_t>> rng_state() const;
  void set_rng_state(const std::optional<std::vector<int64_t>>& state);
  void restore_rng_state(
      const std::optional<std::vector<int64_t>>& state);  // also before compiling

  // The tensors of the program that anchorTensor() can name, and the values of those it named.
  std::vector<std::string> getTensorNames() const;
  at::Tensor getAnchoredTensor(const std::string& short_name) const;

  // Of the last call.
  PerfCounters getPerfCounters() const;
  Latency getLatency() const { return latency(getPerfCounters()); }
  Latency getHostIpuLatency() const { return host_ipu_latency(getPerfCounters()); }
  Latency getComputeLatency() const { return compute_latency(getPerfCounters()); }
  Latency getIpuHostLatency() const { return ipu_host_latency(getPerfCounters()); }

  // Device cycles of the last call: an estimate from the operators' work, see cycle_estimate.h.
  int64_t cycleCount() const;
  std::chrono::duration<double> compilationTime() const;

  // Operators that are not native, with the time they have taken. Empty before compiling.
  std::vector<HostCall> hostCalls() const;

  // The program, for looking at.
  const Executable& executable() const;

 private:
  // The steps of a compilation, in their order: executor_compile.cpp.
  void compile_program(const std::vector<NamedTensor>& inputs);
  void check_for_compile() const;
  void join_instances();
  Capture capture_step(const std::vector<NamedTensor>& inputs);
  std::vector<NamedTensor> micro_batch(const std::vector<NamedTensor>& inputs) const;
  StepSignature complete(Capture& captured, CompiledStep& step,
                         const std::vector<NamedTensor>& inputs);
  std::vector<StepAnchor> name_and_anchor(Capture& captured, std::vector<Output> gradients,
                                          CompiledStep& step) const;
  void add_gradient_counts(Graph& graph, CompiledStep& step) const;

  // Files: executor_files.cpp.
  std::vector<at::Tensor> state_values();
  void check_saved(const SavedModel& saved) const;
  void restore(const SavedModel& saved);

  std::vector<at::Tensor> run_compiled(c10::ArrayRef<at::Tensor> inputs,
                                       std::unique_lock<std::recursive_mutex>& lock);
  void send_loaded_state();

  // Inside another model's forward: executor_inside.cpp.
  Forward noted(Forward forward);
  void check_callable_inside() const;
  void check_weights_sent();

  // The device: taken when the model is attached, given back when it is detached. None for what
  // computes nothing.
  Device take_device() const;
  void attach(Device device);

  bool is_offline() const { return options_.connection_type() == ConnectionType::never; }

  // Recursive: while compiling, forward may read a weight, which asks for its newest value.
  mutable std::recursive_mutex mutex_;
  Purpose purpose_;
  ModelAccess model_;
  Options options_;
  ReplicaGroupings groupings_;
  std::shared_ptr<dist::Link> instances_;  // that train together; null for this one alone
  bool computes_ = true;  // there is something in the program that a device has to do
  Device device_;         // before the program: the session ends before its device is given back
  Program program_;
  WeightsLink weights_;
  OptimizerLink optimizer_;
  bool in_forward_ = false;  // while it is captured, which is one at a time in a process
  RngState rng_;
  bool has_seed_ = false, has_rng_state_ = false;  // what the user may know of it
  double compilation_seconds_ = 0;
  std::shared_ptr<const SavedModel> to_load_;  // in place of compiling
  bool load_optimizer_state_ = false;          // ... with it
};

}  // namespace tessera
