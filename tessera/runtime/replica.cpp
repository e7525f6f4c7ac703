#include "tessera/runtime/replica.h"

#include <chrono>
#include <cstring>

#include "tessera/backend/cpu/kernels/add_into.h"
#include "tessera/backend/cpu/kernels/copy.h"

namespace tessera {
namespace {

int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

Replica::Replica(const Executable& executable, int threads, Communicator* others,
                 std::shared_ptr<const cpu::SharedMemory> shared, ThreadPool* update_pool)
    : executable_(executable),
      others_(others),
      update_pool_(update_pool),
      index_(others ? others->local_rank() : 0),
      rank_(others ? others->rank() : 0),
      pool_(threads, executable.plan().target.level),
      engine_(executable.plan(), pool_, std::move(shared), others) {
  set_rng({});
}

void Replica::write_state(size_t index, std::span<const std::byte> value) {
  if (!value.empty()) cpu::copy_from_dense(value.data(), engine_.state(index), pool_);
}

void Replica::read_state(size_t index, std::span<std::byte> value) const {
  if (!value.empty()) cpu::copy_dense(engine_.state(index), value.data(), pool_);
}

void Replica::set_rng(RngState rng) {
  rng_ = rng;
  rng_.replica = static_cast<uint32_t>(rank_);
}

void Replica::run(const RunRequest& request, const RunExtent& extent,
                  const std::function<void()>& poll) {
  engine_.set_poll(poll ? &poll : nullptr);
  for (int64_t iteration = 0; iteration < extent.device_iterations; ++iteration) {
    for (int64_t step = 0; step < extent.gradient_accumulation; ++step) {
      run_micro_batch(request, extent, {iteration, step, index_});
    }
    run_update();
    keep_states(request, extent, iteration);
  }
  engine_.set_poll(nullptr);
}

void Replica::run_update() {
  const cpu::Plan& plan = executable_.plan();
  if (plan.update_begin == plan.calls.size()) return;  // nobody need wait for anybody
  if (others_) others_->barrier();
  engine_.run_update(rng_of_all(), update_pool_ ? *update_pool_ : pool_);
  if (others_) others_->barrier();
}

// What updates draw: the same everywhere, or the replicas' weights would no longer be equal.
RngState Replica::rng_of_all() const {
  RngState rng = rng_;
  rng.replica = 0;
  return rng;
}

void Replica::run_micro_batch(const RunRequest& request, const RunExtent& extent,
                              const MicroBatch& at) {
  MicroBatchTimes unused;
  const bool timed = !request.times.empty();
  MicroBatchTimes& times = timed ? request.times[static_cast<size_t>(at.number(extent))] : unused;
  if (timed) times.inputs_requested = now();
  const int64_t input = executable_.signature().input_number(at);
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    engine_.set_data_input(i, request.inputs[i] + input * bytes(executable_.data_inputs()[i].type));
  }
  if (timed) times.inputs_read = now();
  engine_.run_micro_batch(rng_, at.step + 1 == extent.gradient_accumulation);
  if (timed) times.outputs_ready = now();
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    keep(engine_.output(i), request.outputs[i], extent, at);
  }
  if (timed) times.outputs_written = now();
  ++rng_.step;
}

void Replica::keep_states(const RunRequest& request, const RunExtent& extent, int64_t iteration) {
  RunExtent updates = extent;
  updates.gradient_accumulation = 1;
  for (const RequestedState& state : request.states) {
    keep(engine_.state(state.state), state.output, updates, {iteration, 0, index_});
  }
}

void Replica::keep(const TensorView& value, const RequestedOutput& output, const RunExtent& extent,
                   const MicroBatch& at) {
  const auto slot = slot_of(output.mode, output.period, extent, at);
  if (!slot) return;
  const int64_t size = value.numel() * static_cast<int64_t>(size_of(value.dtype));
  std::byte* to = output.data + *slot * size;
  if (output.mode == OutputMode::sum && !at.is_first_of_replica()) {
    return cpu::add_into(value, to);
  }
  cpu::copy_dense(value, to, pool_);
}

void Replica::clear_accumulators() {
  for (size_t i = 0; i < executable_.states().size(); ++i) {
    const StateInfo& state = executable_.states()[i];
    if (state.kind != StateKind::accumulator) continue;
    std::memset(engine_.state(i).data, 0, static_cast<size_t>(bytes(state.type)));
  }
}

}  // namespace tessera
