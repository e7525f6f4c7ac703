#include "tessera/runtime/session.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "tessera/backend/cpu/kernels/add_into.h"
#include "tessera/backend/cpu/kernels/copy.h"
#include "tessera/base/error.h"
#include "tessera/base/float_pair.h"
#include "tessera/ops/host_call.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

// Whether there are updates and nothing that sums up gradients for them: each uses those of one
// micro-batch, which may not even be stored.
bool updates_every_micro_batch(const Graph& graph) {
  const auto& states = graph.states();
  const auto& nodes = graph.nodes();
  const bool sums_up = std::any_of(states.begin(), states.end(), [](const State& state) {
    return state.kind == StateKind::accumulator;
  });
  return !sums_up && std::any_of(nodes.begin(), nodes.end(),
                                 [](const Node& node) { return op(node).kind == Kind::update; });
}

// Where the value of an iteration's step goes, counted in values; nowhere where it is not kept.
// An iteration has `steps` of them.
std::optional<int64_t> slot_of(const RequestedOutput& output, int64_t iteration, int64_t iterations,
                               int64_t step, int64_t steps) {
  switch (output.mode) {
    case OutputMode::all:
      return iteration * steps + step;
    case OutputMode::final_value:
      if (iteration + 1 < iterations || step + 1 < steps) return std::nullopt;
      return 0;
    case OutputMode::every_n:
      if ((iteration + 1) % output.period != 0) return std::nullopt;
      return iteration / output.period * steps + step;
    case OutputMode::sum:
      return iteration * steps + step;  // the first is written, the others are added
  }
  return std::nullopt;
}

int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

int64_t outputs_kept(OutputMode mode, int64_t period, int64_t device_iterations,
                     int64_t gradient_accumulation) {
  switch (mode) {
    case OutputMode::final_value:
    case OutputMode::sum:
      return 1;
    case OutputMode::every_n:
      return device_iterations / period * gradient_accumulation;
    case OutputMode::all:
      return device_iterations * gradient_accumulation;
  }
  return 0;
}

Session::Session(std::shared_ptr<const Executable> executable, int threads)
    : executable_(std::move(executable)),
      pool_(threads, executable_->plan().target.level),
      engine_(executable_->plan(), pool_) {
  check_host_calls_can_run(executable_->graph());
  trace_ = TraceFile::from_environment(executable_->plan(), threads);
  if (trace_) record(&trace_->timeline());
}

void Session::write_state(size_t index, std::span<const std::byte> value) {
  TESSERA_INVARIANT(index < executable_->states().size(), "state {}", index);
  const StateInfo& state = executable_->states()[index];
  check(value.size() == static_cast<size_t>(bytes(state.type)), ErrorKind::value,
        "The value for '{}' ({}) must have {} bytes, not {}.", state.name, to_string(state.type),
        bytes(state.type), value.size());
  if (value.empty()) return;
  cpu::copy_from_dense(value.data(), engine_.state(index), pool_);
}

void Session::read_state(size_t index, std::span<std::byte> value) const {
  TESSERA_INVARIANT(index < executable_->states().size(), "state {}", index);
  const StateInfo& state = executable_->states()[index];
  check(value.size() == static_cast<size_t>(bytes(state.type)), ErrorKind::value,
        "The room for '{}' ({}) must have {} bytes, not {}.", state.name, to_string(state.type),
        bytes(state.type), value.size());
  if (!value.empty()) cpu::copy_dense(engine_.state(index), value.data(), pool_);
}

void Session::set_hyperparameter(size_t index, double value) {
  TESSERA_INVARIANT(index < executable_->hyperparameters().size(), "hyper-parameter {}", index);
  const NamedType& input = executable_->hyperparameters()[index];
  const FloatPair pair(value);
  const auto size = static_cast<size_t>(bytes(input.type));
  TESSERA_INVARIANT(input.type.dtype == DType::f32 && size <= sizeof pair, "'{}' is {}", input.name,
                    to_string(input.type));
  std::memcpy(engine_.hyperparameter(index), &pair, size);
}

void Session::run(const RunRequest& request) {
  check_request(request);
  engine_.set_poll(request.poll ? &request.poll : nullptr);
  try {
    for (int64_t iteration = 0; iteration < request.device_iterations; ++iteration) {
      for (int64_t step = 0; step < request.gradient_accumulation; ++step) {
        run_micro_batch(request, iteration * request.gradient_accumulation + step);
      }
      engine_.run_update(rng_);
      for (const RequestedState& state : request.states) {
        const auto slot = slot_of(state.output, iteration, request.device_iterations, 0, 1);
        if (slot) keep(engine_.state(state.state), state.output, *slot);
      }
    }
  } catch (...) {
    clear_accumulators();
    throw;
  }
}

void Session::check_request(const RunRequest& request) const {
  TESSERA_INVARIANT(request.inputs.size() == executable_->data_inputs().size() &&
                        request.outputs.size() == executable_->outputs().size(),
                    "{} inputs and {} outputs, the executable has {} and {}", request.inputs.size(),
                    request.outputs.size(), executable_->data_inputs().size(),
                    executable_->outputs().size());
  check(request.device_iterations >= 1 && request.gradient_accumulation >= 1, ErrorKind::value,
        "Device iterations and gradient accumulation must be at least 1, they are {} and {}.",
        request.device_iterations, request.gradient_accumulation);
  check(request.gradient_accumulation == 1 || !updates_every_micro_batch(executable_->graph()),
        ErrorKind::value,
        "This step was compiled with a gradient accumulation of 1: it keeps no sums of gradients, "
        "and cannot run with {}.",
        request.gradient_accumulation);
  TESSERA_INVARIANT(request.times.empty() ||
                        request.times.size() == static_cast<size_t>(request.device_iterations *
                                                                    request.gradient_accumulation),
                    "times for {} micro-batches", request.times.size());
  const auto check_period = [](const RequestedOutput& output) {
    check(output.mode != OutputMode::every_n || output.period >= 1, ErrorKind::value,
          "The output period must be at least 1, it is {}.", output.period);
  };
  for (const RequestedOutput& output : request.outputs) check_period(output);
  for (const RequestedState& state : request.states) {
    TESSERA_INVARIANT(state.state < executable_->states().size(), "state {}", state.state);
    check_period(state.output);
  }
}

void Session::run_micro_batch(const RunRequest& request, int64_t micro_batch) {
  MicroBatchTimes unused;
  const bool timed = !request.times.empty();
  MicroBatchTimes& times = timed ? request.times[static_cast<size_t>(micro_batch)] : unused;
  if (timed) times.inputs_requested = now();
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    engine_.set_data_input(
        i, request.inputs[i] + micro_batch * bytes(executable_->data_inputs()[i].type));
  }
  if (timed) times.inputs_read = now();
  engine_.run_micro_batch(rng_);
  if (timed) times.outputs_ready = now();
  const int64_t steps = request.gradient_accumulation;
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    const auto slot = slot_of(request.outputs[i], micro_batch / steps, request.device_iterations,
                              micro_batch % steps, steps);
    if (slot) keep(engine_.output(i), request.outputs[i], *slot);
  }
  if (timed) times.outputs_written = now();
  ++rng_.step;
}

void Session::keep(const TensorView& value, const RequestedOutput& output, int64_t slot) {
  if (output.mode == OutputMode::sum) {
    if (slot > 0) return cpu::add_into(value, output.data);
  }
  const int64_t size = value.numel() * static_cast<int64_t>(size_of(value.dtype));
  cpu::copy_dense(value, output.data + slot * size, pool_);
}

void Session::clear_accumulators() {
  for (size_t i = 0; i < executable_->states().size(); ++i) {
    const StateInfo& state = executable_->states()[i];
    if (state.kind != StateKind::accumulator) continue;
    std::memset(engine_.state(i).data, 0, static_cast<size_t>(bytes(state.type)));
  }
}

}  // namespace tessera
