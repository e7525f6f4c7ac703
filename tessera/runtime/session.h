// An Executable with its weights: states, hyper-parameters, random state, threads. One caller at a
// time; two sessions may run at once.
//
// A session has as many replicas of the program as its signature says. What is the same in all of
// them is there once (backend/cpu/shared_memory.h): constants, hyper-parameters, weights and what
// the optimiser remembers, but for those of groups. Each has micro-batches, outputs, buffers and
// random numbers of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/base/rng.h"
#include "tessera/base/thread_group.h"
#include "tessera/runtime/executable.h"
#include "tessera/runtime/replica.h"
#include "tessera/runtime/run_request.h"
#include "tessera/runtime/trace_file.h"

namespace tessera {

class Session {
 public:
  // States and hyper-parameters start as zero. The replicas share the threads. Where the program is
  // one of several instances, which `joined` are, updates are those of all of them.
  Session(std::shared_ptr<const Executable> executable, int threads,
          InstancesOfProgram joined = {});

  const Executable& executable() const { return *executable_; }
  int replicas() const { return group_.size(); }

  // By the executable's order of states and hyper-parameters; sizes are those of their types, for
  // states Executable::host_type(). Writing is for all replicas, reading from the first, but for
  // states of groups; for these, a value for each replica may be given, too: those of a group are
  // the first one's.
  void write_state(size_t index, std::span<const std::byte> value);
  void read_state(size_t index, std::span<std::byte> value) const;
  // What one replica has.
  void read_state_of(size_t replica, size_t index, std::span<std::byte> value) const;
  // An input f32[2] takes the number as a FloatPair, f32[] rounded.
  void set_hyperparameter(size_t index, double value);

  // In bytes, for all replicas together and for each of them.
  struct MemoryUse {
    int64_t shared = 0, of_each = 0;
  };
  MemoryUse memory() const { return {shared_->bytes(), replicas_[0]->engine().own_bytes()}; }

  // What runs through PyTorch's own kernels, and how long that has taken, in all replicas.
  std::vector<cpu::HostCallTime> host_calls() const;

  // Records the calls of the first replica in the next runs; null for none.
  void record(cpu::Timeline* timeline) { replicas_[0]->engine().set_timeline(timeline); }

  // The same for the first steps from now on, written to a file (runtime/trace_file.h); not where
  // the path is empty.
  void trace_to(const std::string& path);

  // Stops a run with an Error where an operator makes a value that is not finite from ones that
  // are, or a NaN from what is none.
  void check_values(bool check);

  // Stops a run with an Error where a call is not what the reference kernels say, value by value.
  void check_calls(bool check);

  // Of the first replica; the others differ from it by their number alone.
  RngState rng() const { return replicas_[0]->rng(); }
  void set_rng(RngState rng);

  // Runs device_iterations * gradient_accumulation micro-batches in each replica, an update after
  // every gradient_accumulation-th. Each micro-batch has a random step of its own.
  //
  // When a kernel throws an Error (a class index outside its range) or poll() throws, everything
  // before the failing micro-batch stays done. Of the failing micro-batch, states that
  // micro-batches change (buffers) have each either their old or their new value; parameters and
  // optimiser states are untouched; accumulators are cleared, so that the next run() begins a
  // weight update anew. Outputs of earlier micro-batches have been written.
  //
  // The same holds for several replicas: one that fails stops all of them, none of them begins an
  // update that the others do not begin, and the Error is that of the first that failed by number.
  // Of several instances, those who wait for one that failed fail too, and cannot run again.
  void run(const RunRequest& request);

 private:
  RunExtent extent_of(const RunRequest& request) const;
  void check_request(const RunRequest& request, const RunExtent& extent) const;
  void run_together(const RunRequest& request, const RunExtent& extent);
  size_t number_of_value(const GroupedState& grouped, size_t replica, bool of_replicas) const;
  void begin_anew();
  void run_replicas(const RunRequest& request, const RunExtent& extent);
  void join_steps(const RunRequest& request, const RunExtent& extent);
  void take_weights_of_first(const RunRequest& request);
  uint32_t digest_of_numbers() const;

  std::shared_ptr<const Executable> executable_;
  const InstancesOfProgram joined_;
  ThreadGroup group_;
  uint32_t weights_written_ = 0;  // how often, from outside; all instances alike
  uint32_t weights_agreed_ = 0;   // ... when they were last compared
  std::shared_ptr<const cpu::SharedMemory> shared_;
  std::unique_ptr<ThreadPool> update_pool_;  // null where no replica has fewer threads
  std::unique_ptr<ThreadPool> runners_;      // a thread for each replica; null for a single one
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::unique_ptr<TraceFile> trace_;
};

}  // namespace tessera
