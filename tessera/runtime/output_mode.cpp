#include "tessera/runtime/output_mode.h"

namespace tessera {

int64_t outputs_kept(OutputMode mode, int64_t period, const RunExtent& run) {
  switch (mode) {
    case OutputMode::final_value:
    case OutputMode::sum:
      return run.replicas;
    case OutputMode::every_n:
      return run.device_iterations / period * run.gradient_accumulation * run.replicas;
    case OutputMode::all:
      return run.of_a_replica() * run.replicas;
  }
  return 0;
}

std::optional<int64_t> slot_of(OutputMode mode, int64_t period, const RunExtent& run,
                               const MicroBatch& at) {
  switch (mode) {
    case OutputMode::all:
      return at.number(run);
    case OutputMode::final_value:
      if (at.iteration + 1 < run.device_iterations || at.step + 1 < run.gradient_accumulation) {
        return std::nullopt;
      }
      return at.replica;
    case OutputMode::every_n:
      if ((at.iteration + 1) % period != 0) return std::nullopt;
      return MicroBatch{at.iteration / period, at.step, at.replica}.number(run);
    case OutputMode::sum:
      return at.replica;
  }
  return std::nullopt;
}

}  // namespace tessera
