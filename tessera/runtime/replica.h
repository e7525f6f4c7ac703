// One of the copies of a program that a Session runs: activations, random state and threads of its
// own. Collectives of the program reach the others, with which it shares what all of them have.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "tessera/backend/cpu/engine.h"
#include "tessera/base/communicator.h"
#include "tessera/base/rng.h"
#include "tessera/base/thread_pool.h"
#include "tessera/runtime/executable.h"
#include "tessera/runtime/run_request.h"

namespace tessera {

class Replica {
 public:
  // `others` is this replica's own communicator; null where it is the only one. `update_pool` has
  // the threads of all, for the first; null where those of its own are all. The executable is kept
  // by the session.
  Replica(const Executable& executable, int threads, Communicator* others,
          std::shared_ptr<const cpu::SharedMemory> shared, ThreadPool* update_pool);

  cpu::Engine& engine() { return engine_; }
  const cpu::Engine& engine() const { return engine_; }
  int threads() const { return pool_.size(); }

  // Dense and of the state's size.
  void write_state(size_t index, std::span<const std::byte> value);
  void read_state(size_t index, std::span<std::byte> value) const;

  RngState rng() const { return rng_; }
  void set_rng(RngState rng);  // the replica's own number stays

  // Runs its micro-batches of the request, in which it reads and writes what is its own. No update
  // begins before all replicas have done the micro-batches for it, so that all have the same
  // weights also after one of them has failed.
  // `poll` is asked instead of the request's; what it throws stops this replica.
  void run(const RunRequest& request, const RunExtent& extent, const std::function<void()>& poll);
  void clear_accumulators();

 private:
  void run_micro_batch(const RunRequest& request, const RunExtent& extent, const MicroBatch& at);
  void run_update();
  RngState rng_of_all() const;
  void keep_states(const RunRequest& request, const RunExtent& extent, int64_t iteration);
  void keep(const TensorView& value, const RequestedOutput& output, const RunExtent& extent,
            const MicroBatch& at);

  const Executable& executable_;
  Communicator* const others_;
  ThreadPool* const update_pool_;
  const int index_;          // in this process
  const int rank_;           // in all of them
  mutable ThreadPool pool_;  // reading a state out of its layout is work too
  cpu::Engine engine_;
  RngState rng_;
};

}  // namespace tessera
