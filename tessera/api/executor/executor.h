// Runs a model as one static program: compiles it at the first call, keeps its weights on the
// device, moves them to the host only when somebody needs them there. C++ and Python front ends are
// thin layers over this.
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

#include "tessera/api/executor/anchors.h"
#include "tessera/api/executor/borrowed_weights.h"
#include "tessera/api/executor/host_weights.h"
#include "tessera/api/executor/input_stage.h"
#include "tessera/api/executor/module_weights.h"
#include "tessera/api/executor/perf_counters.h"
#include "tessera/api/optimizer/attribute_tracker.h"
#include "tessera/api/optimizer/optimizer.h"
#include "tessera/api/options/options.h"
#include "tessera/runtime/session.h"
#include "tessera/torch/capture.h"

namespace tessera {

enum class Purpose { training, inference };

// How an executor reaches the user's module.
struct ModelAccess {
  // As they are now; one with several names is listed under each of them.
  std::function<std::vector<NamedTensor>()> parameters;
  std::function<std::vector<NamedTensor>()> buffers;
  Forward forward;
  FrontEnd front_end = {};
  std::function<std::vector<ModuleClass>()> modules = {};  // of a model written in C++
  std::function<void()> poll = {};  // throws where the user wants a running call to stop
};

// An operator of the program that runs PyTorch's own kernel, for lack of one of ours.
struct HostCall {
  std::string overload;  // "aten::linalg_qr"
  int64_t nodes = 0;     // in the program
  int64_t runs = 0;      // so far
  double seconds = 0;
};

class Executor : private WeightHolder, private OptimizerStateHolder {
 public:
  // Training without an optimiser uses SGD with a learning rate of 0.01.
  Executor(Purpose purpose, ModelAccess model, const Options& options,
           std::optional<Optimizer> optimizer = std::nullopt);
  ~Executor() override;
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

  // Compiles for these inputs. A second time it warns and does nothing.
  void compile(const std::vector<NamedTensor>& inputs);

  bool isCompiled() const { return executable_ != nullptr; }
  bool isAttachedToDevice() const { return session_ != nullptr; }
  void attachToDevice();
  void detachFromDevice();
  void destroy();

  void copyWeightsToHost();
  void copyWeightsToDevice();
  bool copyWeightsToHostIfNeeded();  // true where a copy happened
  bool host_is_outdated() const;     // the device has newer ones
  // The module has other parameters or buffers than before: they are looked up before the next run,
  // and go to the device then.
  void weights_were_replaced() { look_again_ = true; }
  // The buffers that Options::updatableNamedBuffers names, and nothing else.
  void copyNamedBuffersToDevice();

  void setOptimizer(Optimizer optimizer);

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
  void close_session();
  struct Input {
    std::string name;
    at::ScalarType type;
    Shape shape;
    InputStage stage;
  };
  struct Result {
    at::ScalarType type;
    Shape shape;
  };

  void write_weights_to_host() override { copyWeightsToHostIfNeeded(); }
  bool try_write_weights_to_host() override;
  bool is_offline() const { return options_.connection_type() == ConnectionType::never; }
  void check_for_compile() const;
  void name_and_anchor(Capture& capture, std::vector<Output> gradients);
  void check_compiled() const;
  void compile_program(const std::vector<NamedTensor>& inputs);
  void check_inputs(c10::ArrayRef<at::Tensor> inputs) const;
  void check_changed_inputs(c10::ArrayRef<at::Tensor> inputs);
  void prepare_calls(const std::vector<NamedTensor>& inputs);
  std::vector<at::Tensor> run_compiled(c10::ArrayRef<at::Tensor> inputs,
                                       std::unique_lock<std::recursive_mutex>& lock);
  Forward noted(Forward forward);
  void check_callable_inside() const;
  void check_weights_sent();
  std::vector<NamedTensor> micro_batch(const std::vector<NamedTensor>& inputs) const;
  void add_update(Capture& capture);
  void check_same_parameters(const Optimizer& optimizer) const;
  void accept(const Optimizer& optimizer);
  void send_hyperparameters();
  bool bring_optimizer_state() override;
  std::optional<std::vector<NamedTensor>> newer_numbers() override;
  std::vector<NamedTensor> optimizer_numbers() const;
  void send_optimizer_state();
  void send_loaded_state();
  std::vector<NamedTensor> module_tensors() const;
  void bring_weights_to_host() const;
  void look_up_weights();
  bool fetch_newer_weights();
  bool have_weights();
  void read_weight(size_t index);
  void write_trained_weights();
  void send_weight(size_t index);
  void mark_host_outdated();

  // Recursive: while compiling, forward may read a weight, which asks for its newest value.
  mutable std::recursive_mutex mutex_;
  Purpose purpose_;
  ModelAccess model_;
  Options options_;
  Optimizer optimizer_;
  AttributeTracker attributes_;
  bool default_optimizer_ = false;                // for all parameters, whichever they are
  Optimizer::Names grouped_;                      // the parameters of its groups, in the module
  Optimizer::Names updated_;                      // ... and in the program
  std::map<std::string, double> loaded_numbers_;  // with a state; since then no other was set
  bool optimizer_outdated_ = false;               // the host's copy of its state

  std::shared_ptr<const Executable> executable_;
  std::unique_ptr<Session> session_;
  std::vector<Input> inputs_;
  InputWarnings input_warnings_;
  std::vector<Result> results_;  // per output of the executable
  RunRequest request_;           // made at compile time; a call only puts its memory in
  std::vector<HostCall> host_calls_;
  ModuleWeights weights_;                 // the executable's first states
  std::atomic<bool> look_again_ = false;  // the module has other tensors
  BorrowedWeights borrowed_;
  bool in_forward_ = false;  // while it is captured, which is one at a time in a process
  std::vector<CapturedOutput> outputs_;
  std::vector<ChangedInput> changed_inputs_;
  std::vector<std::string> tensor_names_;
  Anchors anchors_;
  std::vector<at::Tensor> synthetic_inputs_;  // in place of the user's, where that was asked for
  std::vector<MicroBatchTimes> times_;        // of the last call
  RngState rng_;
  bool has_seed_ = false, has_rng_state_ = false;  // what the user may know of it
  bool has_run_ = false;                           // since it was compiled
  const std::shared_ptr<HolderAccess> access_ =
      std::make_shared<HolderAccess>(static_cast<WeightHolder&>(*this));
  std::atomic<bool> host_outdated_ = false;  // also read without the lock
  double compilation_seconds_ = 0;
};

}  // namespace tessera
