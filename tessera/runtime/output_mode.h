// Which micro-batches' values a run hands back, and where each of them goes: by device iteration,
// within one by accumulation step, within that by replica.
#pragma once

#include <cstdint>
#include <optional>

namespace tessera {

enum class OutputMode {
  final_value,  // of the last micro-batch of each replica
  every_n,      // of every micro-batch of device iterations N-1, 2N-1, ...
  all,          // of every micro-batch
  sum  // added up over all micro-batches of each replica: floats in order in f32, bools by or
};

// How many micro-batches a run has.
struct RunExtent {
  int64_t device_iterations = 1, gradient_accumulation = 1, replicas = 1;

  int64_t of_a_replica() const { return device_iterations * gradient_accumulation; }
};

// One of them. Its inputs are the number()-th of all.
struct MicroBatch {
  int64_t iteration = 0, step = 0, replica = 0;

  int64_t number(const RunExtent& run) const {
    return (iteration * run.gradient_accumulation + step) * run.replicas + replica;
  }
  bool is_first_of_replica() const { return iteration == 0 && step == 0; }
};

// How many values an output has in all.
int64_t outputs_kept(OutputMode mode, int64_t period, const RunExtent& run);

// Where a micro-batch's value goes, counted in values; nowhere where it is not kept. Those of a sum
// go to one place: the first is written, the others are added to it.
std::optional<int64_t> slot_of(OutputMode mode, int64_t period, const RunExtent& run,
                               const MicroBatch& at);

}  // namespace tessera
