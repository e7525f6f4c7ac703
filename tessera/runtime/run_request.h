// What a caller gives a Session to run: memory of inputs and outputs, how often, and who watches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tessera/runtime/output_mode.h"

namespace tessera {

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
  std::optional<int64_t> device_iterations = {};  // unset: as the executable was compiled
  // The executable's count. Whoever says for which one he made room is told where it is another.
  std::optional<int64_t> gradient_accumulation = {};
  // Per data input: StepSignature::input_number() * bytes(type).
  std::vector<const std::byte*> inputs = {};
  std::vector<RequestedOutput> outputs = {};  // per output
  std::vector<RequestedState> states = {};
  std::span<MicroBatchTimes> times = {};  // by MicroBatch::number(); empty: not asked
  // Called between kernels, a few times a second; what it throws stops the run.
  std::function<void()> poll = {};
};

}  // namespace tessera
