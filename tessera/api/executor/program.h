// A compiled step and the device it runs on, called with PyTorch's tensors: what a Session does
// with bytes, in the user's types. It has states, but does not know which module or optimiser they
// belong to. Empty until something is loaded. One caller at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/api/executor/anchors.h"
#include "tessera/api/executor/input_stage.h"
#include "tessera/api/executor/perf_counters.h"
#include "tessera/runtime/compile.h"
#include "tessera/runtime/program_key.h"
#include "tessera/runtime/session.h"

namespace tessera {

// An operator of the program that runs PyTorch's own kernel, for lack of one of ours.
struct HostCall {
  std::string overload;  // "aten::linalg_qr"
  int64_t nodes = 0;     // in the program
  int64_t runs = 0;      // so far
  double seconds = 0;
};

// What a file says of a program, beside the executable.
struct SavedFacts {
  std::string program;               // program_key() of what was captured
  std::vector<SourceLine> lines;     // of the user's files
  std::vector<at::Tensor> examples;  // one micro-batch of each input
  CompileOptions options = {};       // it was compiled with
};

// What a compilation made.
struct CompiledStep {
  std::shared_ptr<const Executable> executable;
  std::vector<at::Tensor> constants;      // per returned tensor; undefined where it is an output
  std::vector<std::string> tensor_names;  // those that anchorTensor() can name
  SavedFacts facts = {};                  // for a file
  size_t weights = 0;                     // the module's are the executable's first states
  // Outputs, this and the next, that say how many elements of half-precision gradients were too
  // large and too small; for the log.
  std::optional<size_t> gradient_counts = {};
};

struct CallSettings {
  std::function<void()> poll = {};  // throws where the user wants a running call to stop
  bool synthetic_data = false;      // the inputs' values are not read
};

class Program {
 public:
  bool is_compiled() const { return executable_ != nullptr; }
  bool is_attached() const { return session_ != nullptr; }
  void check_compiled() const;  // Error where it is not

  void load(CompiledStep step, CallSettings settings);
  void clear();
  void attach(RngState rng, Instances* instances = nullptr);
  void detach();

  const Executable& executable() const { return *executable_; }
  const StepSignature& signature() const { return executable_->signature(); }
  Session& session() const { return *session_; }
  size_t weights() const { return weights_; }  // so many states are the module's
  const SavedFacts& facts() const { return facts_; }
  bool counts_gradients() const { return gradient_counts_.has_value(); }
  size_t input_count() const { return inputs_.size(); }

  // Error for tensors of other types or shapes than it was compiled for.
  void check_inputs(c10::ArrayRef<at::Tensor> inputs) const;
  // Error where an input that forward changes shares memory with another one.
  void check_apart(c10::ArrayRef<at::Tensor> inputs) const;

  // Reads the inputs and makes room for the results, before anything on the device changes.
  std::vector<at::Tensor> stage(c10::ArrayRef<at::Tensor> inputs);
  // One call with inputs that were staged; returns what forward returned. `numbers` are the
  // optimiser's, for those who anchored one; `start` is when the user called.
  std::vector<at::Tensor> run(c10::ArrayRef<at::Tensor> inputs, const std::vector<at::Tensor>& room,
                              const std::function<std::vector<double>()>& numbers,
                              std::chrono::steady_clock::time_point start);

  const std::vector<std::string>& tensor_names() const { return tensor_names_; }
  at::Tensor anchored(const std::string& short_name) const { return anchors_.value(short_name); }
  bool has_run() const { return has_run_; }
  PerfCounters perf_counters() const;        // of the last call
  int64_t estimated_cycles() const;          // of a call
  std::vector<HostCall> host_calls() const;  // also of devices it was detached from

 private:
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

  at::Tensor of_input_groups(const at::Tensor& values) const;
  void log_gradient_counts(const std::vector<at::Tensor>& results) const;
  void prepare_inputs(bool synthetic);
  void prepare_outputs();
  std::vector<at::Tensor> returned(const std::vector<at::Tensor>& results) const;

  std::shared_ptr<const Executable> executable_;
  std::unique_ptr<Session> session_;
  size_t weights_ = 0;
  SavedFacts facts_;
  std::vector<Input> inputs_;
  InputWarnings input_warnings_;
  std::vector<Result> results_;  // per output of the executable
  std::vector<at::Tensor> constants_;
  std::optional<size_t> gradient_counts_;
  RunRequest request_;  // made when it is loaded; a call only puts its memory in
  std::vector<std::string> tensor_names_;
  Anchors anchors_;
  std::vector<at::Tensor> synthetic_inputs_;  // in place of the user's, where that was asked for
  std::vector<MicroBatchTimes> times_;        // of the last call
  std::vector<HostCall> host_calls_;          // until the last detach()
  bool has_run_ = false;
};

}  // namespace tessera
