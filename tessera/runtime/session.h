// An Executable with its weights: states, hyper-parameters, random state, threads. One caller at a
// time; two sessions may run at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tessera/backend/cpu/engine.h"
#include "tessera/base/rng.h"
#include "tessera/base/thread_pool.h"
#include "tessera/runtime/executable.h"
#include "tessera/runtime/trace_file.h"

namespace tessera {

// Which micro-batches' outputs are handed back.
enum class OutputMode {
  final_value,  // of the last micro-batch
  every_n,      // of every micro-batch of device iterations N-1, 2N-1, ...
  all,          // of every micro-batch
  sum           // added up over all micro-batches: floats in order in f32, bools by or
};

int64_t outputs_kept(OutputMode mode, int64_t period, int64_t device_iterations,
                     int64_t gradient_accumulation);

struct RequestedOutput {
  std::byte* data = nullptr;  // room for outputs_kept() values
  OutputMode mode = OutputMode::all;
  int64_t period = 1;  // the N of every_n
};

// The values that a state has after weight updates, as if it were an output of each of them.
struct RequestedState {
  size_t state = 0;
  RequestedOutput output;  // room for outputs_kept() values at a gradient accumulation of 1
};

// When what happened to a micro-batch, in nanoseconds of the steady clock.
struct MicroBatchTimes {
  int64_t inputs_requested = 0, inputs_read = 0, outputs_ready = 0, outputs_written = 0;
};

struct RunRequest {
  int64_t device_iterations = 1, gradient_accumulation = 1;
  std::vector<const std::byte*> inputs;  // per data input: micro-batch i at i * bytes(type)
  std::vector<RequestedOutput> outputs;  // per output
  std::vector<RequestedState> states = {};
  std::span<MicroBatchTimes> times = {};  // per micro-batch; empty where nobody asks
  // Called between kernels, a few times a second; what it throws stops the run.
  std::function<void()> poll = {};
};

class Session {
 public:
  // States and hyper-parameters start as zero.
  Session(std::shared_ptr<const Executable> executable, int threads);

  const Executable& executable() const { return *executable_; }

  // By the executable's order of states and hyper-parameters; sizes are those of their types.
  void write_state(size_t index, std::span<const std::byte> value);
  void read_state(size_t index, std::span<std::byte> value) const;
  // An input f32[2] takes the number as a FloatPair, f32[] rounded.
  void set_hyperparameter(size_t index, double value);

  // What runs through PyTorch's own kernels, and how long that has taken.
  const std::vector<cpu::HostCallTime>& host_calls() const { return engine_.host_calls(); }

  // Records the calls of the next runs; null for none.
  void record(cpu::Timeline* timeline) { engine_.set_timeline(timeline); }

  // Stops a run with an Error where an operator makes a value that is not finite from ones that
  // are, or a NaN from what is none.
  void check_values(bool check) { engine_.check_values(check); }

  // Stops a run with an Error where a call is not what the reference kernels say, value by value.
  void check_calls(bool check) { engine_.check_calls(check); }

  RngState rng() const { return rng_; }
  void set_rng(RngState rng) { rng_ = rng; }

  // Runs device_iterations * gradient_accumulation micro-batches, an update after every
  // gradient_accumulation-th. Each micro-batch has a random step of its own.
  //
  // When a kernel throws an Error (a class index outside its range) or poll() throws, everything
  // before the failing micro-batch stays done. Of the failing micro-batch, states that
  // micro-batches change (buffers) have each either their old or their new value; parameters and
  // optimiser states are untouched; accumulators are cleared, so that the next run() begins a
  // weight update anew. Outputs of earlier micro-batches have been written.
  void run(const RunRequest& request);

 private:
  void check_request(const RunRequest& request) const;
  void run_micro_batch(const RunRequest& request, int64_t micro_batch);
  void keep(const TensorView& value, const RequestedOutput& output, int64_t slot);
  void clear_accumulators();

  std::shared_ptr<const Executable> executable_;
  mutable ThreadPool pool_;  // reading a state out of its layout is work too
  cpu::Engine engine_;
  RngState rng_;
  std::unique_ptr<TraceFile> trace_;
};

}  // namespace tessera
