// Runs a Plan. An engine owns the memory of one running program: the arena, and what the replicas
// of it do not share. Nothing is allocated while it runs. The denormal mode is the caller's.
//
// An Error from a kernel stops the phase at that call; calls before it have done their work, calls
// after it have not, and the engine can run again.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "tessera/backend/cpu/kernels/stateful_kernel.h"
#include "tessera/backend/cpu/memory.h"
#include "tessera/backend/cpu/plan.h"
#include "tessera/backend/cpu/referee.h"
#include "tessera/backend/cpu/shared_memory.h"
#include "tessera/backend/cpu/timeline.h"
#include "tessera/base/rng.h"
#include "tessera/base/thread_pool.h"

namespace tessera::cpu {

// The time that a call of PyTorch's kernel has taken so far.
struct HostCallTime {
  const Call* call = nullptr;
  int64_t runs = 0, nanoseconds = 0;
};

class Engine {
 public:
  // Keeps references. Fills the constants; states start as zero.
  Engine(const Plan& plan, ThreadPool& pool);
  // One of several replicas: how its collectives reach the others, and what it has with them. The
  // first is made first: it fills the constants for all.
  Engine(const Plan& plan, ThreadPool& pool, std::shared_ptr<const SharedMemory> shared,
         Communicator* replicas);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Row by row in the state's logical order, whatever its layout.
  TensorView state(size_t index) const { return view_of(plan_.states[index]); }
  bool owns_state(size_t index) const { return is_first_ || shared_->is_own(index); }
  int64_t own_bytes() const { return arena_.bytes() + own_states_.bytes(); }
  std::byte* hyperparameter(size_t index) { return start_of(plan_.hyperparameters[index]); }

  // Where the next micro-batches find a data input. It is never written.
  void set_data_input(size_t index, const std::byte* data);

  // Called between kernels, a few times a second; what it throws stops the phase. None when null.
  void set_poll(const std::function<void()>* poll) { poll_ = poll; }

  // From now on an Error where a call makes a value that is not finite from ones that are.
  void check_values(bool check) { checks_values_ = check; }

  // From now on a referee runs beside every call: an Error where one is wrong.
  void check_calls(bool check) { referee_ = check ? std::make_unique<Referee>(plan_) : nullptr; }

  // Records the calls that run from now on; null for none.
  void set_timeline(Timeline* timeline);

  // `is_last`: of those before the next update, whose sums over replicas may begin.
  void run_micro_batch(RngState rng, bool is_last = true);
  // With threads of its own, since other replicas wait meanwhile.
  void run_update(RngState rng, ThreadPool& pool);
  void run_update(RngState rng) { run_update(rng, pool_); }

  // Valid between run_micro_batch() and run_update().
  const TensorView& output(size_t index) const { return outputs_[index]; }

  const std::vector<HostCallTime>& host_calls() const { return host_calls_; }

 private:
  struct BoundCall {
    const Call* call = nullptr;
    std::vector<TensorView> inputs, outputs;
    std::span<std::byte> workspace;
    // Of a kernel that needs a state; null for others.
    const StatefulKernel* stateful = nullptr;
    std::unique_ptr<KernelState> state;
    size_t host_call = 0;   // where its time is kept, for a call of PyTorch's kernel
    size_t collective = 0;  // its number, for one
    bool begun = false;     // ... and whether it has begun already
  };

  // A collective that begins when its operands are whole.
  struct EarlyAddition {
    size_t whole_after = 0, call = 0;
    std::vector<Summand> summands;
  };

  std::byte* start_of(BufferId id) const;
  TensorView view_of(const Place& place) const;
  BoundCall bind(const Call& call) const;
  void note_data_input(const Place& place, TensorView& view);
  void run(size_t begin, size_t end, RngState rng, ThreadPool& pool);
  void note_collectives();
  void begin_additions(size_t& next, size_t call);
  void run_call(BoundCall& bound, RngState rng, ThreadPool& pool);
  void run_refereed(size_t call, RngState rng, ThreadPool& pool);
  void check_states(Phase phase);
  void run_host_call(BoundCall& bound, RngState rng, ThreadPool& pool);
  void poll();

  const Plan& plan_;
  ThreadPool& pool_;
  Communicator* const replicas_;
  const bool is_first_;
  const std::shared_ptr<const SharedMemory> shared_;
  Memory arena_, own_states_;
  std::vector<BoundCall> calls_;
  std::vector<TensorView> outputs_;
  std::vector<HostCallTime> host_calls_;  // in the order of the plan
  std::vector<EarlyAddition> early_;      // in the order in which they can begin
  bool begins_early_ = false;
  const std::function<void()>* poll_ = nullptr;
  int64_t last_poll_ = 0;  // in milliseconds
  Timeline* timeline_ = nullptr;
  bool checks_values_ = false;
  std::unique_ptr<Referee> referee_;  // null where nobody asked for one
  struct DataView {
    TensorView* view;
    int64_t byte_offset;
  };
  std::vector<std::vector<DataView>> data_views_;  // by data input: what to move when it moves
};

}  // namespace tessera::cpu
