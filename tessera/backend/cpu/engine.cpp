#include "tessera/backend/cpu/engine.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>
#include <utility>

#include "tessera/backend/cpu/collectives.h"
#include "tessera/backend/cpu/value_check.h"
#include "tessera/base/error.h"

namespace tessera::cpu {
namespace {

// Between an operator and where it comes from: a module's name, or a line alone.
std::string_view origin_word(std::string_view origin) {
  if (origin.empty()) return "";
  return origin.starts_with('[') ? " " : " of ";
}

SourcePlace place_of(const Plan& plan, const Call& call) {
  return call.node.valid() ? source_place(plan.graph->node(call.node).origin) : SourcePlace{};
}

// Of a clock that ticks some hundred times a second and costs next to nothing to read.
int64_t coarse_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace

Engine::Engine(const Plan& plan, ThreadPool& pool)
    : Engine(plan, pool, std::make_shared<const SharedMemory>(plan), nullptr) {}

Engine::Engine(const Plan& plan, ThreadPool& pool, std::shared_ptr<const SharedMemory> shared,
               Communicator* replicas)
    : plan_(plan),
      pool_(pool),
      replicas_(replicas),
      is_first_(!replicas || replicas->local_rank() == 0),
      shared_(std::move(shared)),
      arena_(plan.memory.arena_bytes),
      own_states_(shared_->own_state_bytes()),
      data_views_(plan.data_inputs.size()) {
  TESSERA_INVARIANT(pool.level() == plan.target.level, "threads for {} run a plan for {}",
                    name_of(pool.level()), name_of(plan.target.level));
  for (size_t i = 0; i < plan.load.size() && is_first_; ++i) {
    BoundCall bound = bind(plan.load[i]);
    run_call(bound, {}, pool);
  }
  calls_.reserve(plan.calls.size());
  for (const Call& call : plan.calls) {
    BoundCall& bound = calls_.emplace_back(bind(call));
    if (call.host) {
      bound.host_call = host_calls_.size();
      host_calls_.push_back({.call = &call});
    }
    for (size_t i = 0; i < call.inputs.size(); ++i)
      note_data_input(call.inputs[i], bound.inputs[i]);
  }
  note_collectives();
  outputs_.reserve(plan.outputs.size());
  for (const Place& place : plan.outputs) {
    note_data_input(place, outputs_.emplace_back(view_of(place)));
  }
}

std::byte* Engine::start_of(BufferId id) const {
  const Buffer& buffer = plan_.buffer(id);
  switch (buffer.space) {
    case Space::arena:
      return arena_.data() + buffer.offset;
    case Space::state: {
      const auto index = static_cast<size_t>(buffer.index);
      std::byte* memory = shared_->is_own(index) ? own_states_.data() : shared_->states();
      return memory + shared_->state_offset(index);
    }
    case Space::hyperparameter:
      return shared_->hyperparameters() + buffer.offset;
    case Space::constant:
      return shared_->constants() + buffer.offset;
    case Space::data:
      return nullptr;
  }
  return nullptr;
}

TensorView Engine::view_of(const Place& place) const {
  if (!place.buffer.valid()) return {nullptr, place.dtype, {}, {}, false};
  std::byte* start = start_of(place.buffer);
  return {start ? start + byte_offset(place) : nullptr, place.dtype, place.geometry.shape,
          place.geometry.strides};
}

Engine::BoundCall Engine::bind(const Call& call) const {
  BoundCall bound;
  bound.call = &call;
  bound.stateful = dynamic_cast<const StatefulKernel*>(call.run.get());
  if (bound.stateful) bound.state = bound.stateful->make_state();
  for (const Place& place : call.inputs) bound.inputs.push_back(view_of(place));
  for (const Place& place : call.outputs) bound.outputs.push_back(view_of(place));
  if (call.workspace.valid()) {
    bound.workspace = {start_of(call.workspace),
                       static_cast<size_t>(plan_.buffer(call.workspace).bytes)};
  }
  return bound;
}

void Engine::note_data_input(const Place& place, TensorView& view) {
  if (!place.buffer.valid()) return;
  const Buffer& buffer = plan_.buffer(place.buffer);
  if (buffer.space != Space::data) return;
  data_views_[static_cast<size_t>(buffer.index)].push_back({&view, byte_offset(place)});
}

// Which calls are collectives, and what of them can begin early, in the order in which it can.
void Engine::note_collectives() {
  const std::vector<Collective> collectives = collectives_of(plan_);
  for (size_t number = 0; number < collectives.size(); ++number) {
    const Collective& collective = collectives[number];
    BoundCall& bound = calls_[collective.call];
    bound.collective = number;
    if (!collective.whole_after || !replicas_ || !replicas_->adds_up_early()) continue;
    EarlyAddition early{*collective.whole_after, collective.call, {}};
    for (const TensorView& view : bound.inputs) {
      early.summands.push_back({view.data, view.data, static_cast<size_t>(view.numel())});
    }
    early_.push_back(std::move(early));
  }
  std::stable_sort(early_.begin(), early_.end(),
                   [](const auto& a, const auto& b) { return a.whole_after < b.whole_after; });
}

void Engine::begin_additions(size_t& next, size_t call) {
  for (; next < early_.size() && early_[next].whole_after == call; ++next) {
    const EarlyAddition& early = early_[next];
    BoundCall& bound = calls_[early.call];
    replicas_->begin_all_reduce(bound.collective, {bound.inputs[0].dtype, early.summands});
    bound.begun = true;
  }
}

void Engine::set_data_input(size_t index, const std::byte* data) {
  for (const DataView& at : data_views_[index]) {
    // Views have no constness; kernels do not write their inputs, and lowering never gives a data
    // input's memory to a result.
    at.view->data = const_cast<std::byte*>(data) + at.byte_offset;
  }
}

void Engine::set_timeline(Timeline* timeline) {
  timeline_ = timeline;
  pool_.set_observer(timeline);
}

void Engine::run_micro_batch(RngState rng, bool is_last) {
  // Whoever looks at the calls one by one wants to see what each of them reads.
  begins_early_ = is_last && !referee_ && !checks_values_;
  if (referee_) {
    referee_->begin_micro_batch();
    for (size_t i = 0; i < plan_.states.size(); ++i) referee_->take_state(i, state(i), pool_);
  }
  run(0, plan_.update_begin, rng, pool_);
  begins_early_ = false;
  if (!referee_) return;
  for (size_t i = 0; i < outputs_.size(); ++i) referee_->check_output(i, outputs_[i], pool_);
  check_states(Phase::micro_batch);
}

void Engine::run_update(RngState rng, ThreadPool& pool) {
  run(plan_.update_begin, plan_.calls.size(), rng, pool);
  if (referee_) check_states(Phase::update);
}

void Engine::check_states(Phase phase) {
  for (size_t i = 0; i < plan_.states.size(); ++i) {
    // What the first replica has made of a state only its own referee knows.
    if (phase == Phase::micro_batch || owns_state(i)) {
      referee_->check_state(i, phase, state(i), pool_);
    }
  }
}

void Engine::run(size_t begin, size_t end, RngState rng, ThreadPool& pool) {
  size_t next_early = begins_early_ ? 0 : early_.size();
  for (size_t i = begin; i < end; ++i) {
    if (!is_first_ && !shared_->runs_everywhere(i)) continue;
    if (timeline_) timeline_->begin_call(i);
    if (referee_) {
      run_refereed(i, rng, pool);
    } else if (calls_[i].call->host) {
      run_host_call(calls_[i], rng, pool);
    } else {
      run_call(calls_[i], rng, pool);
    }
    if (timeline_) timeline_->end_call();
    if (next_early < early_.size()) begin_additions(next_early, i);
    if (poll_) poll();
  }
}

void Engine::poll() {
  constexpr int64_t period = 100;
  const int64_t now = coarse_milliseconds();
  if (now - last_poll_ < period) return;
  last_poll_ = now;
  (*poll_)();
}

void Engine::run_host_call(BoundCall& bound, RngState rng, ThreadPool& pool) {
  const auto start = std::chrono::steady_clock::now();
  run_call(bound, rng, pool);
  const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - start;
  HostCallTime& time = host_calls_[bound.host_call];
  ++time.runs;
  time.nanoseconds += taken.count();
}

void Engine::run_refereed(size_t call, RngState rng, ThreadPool& pool) {
  BoundCall& bound = calls_[call];
  referee_->before(call, bound.inputs, bound.outputs, pool);
  if (bound.call->host) {
    run_host_call(bound, rng, pool);
  } else {
    run_call(bound, rng, pool);
  }
  referee_->after(call, bound.outputs, pool, rng);
}

void Engine::run_call(BoundCall& bound, RngState rng, ThreadPool& pool) {
  const Call& call = *bound.call;
  try {
    std::optional<ValueCheck> check;
    if (checks_values_) check.emplace(*plan_.graph, call, bound.inputs);
    const KernelCall kernel_call{.inputs = bound.inputs,
                                 .outputs = bound.outputs,
                                 .attrs = call.attrs,
                                 .pool = pool,
                                 .rng = rng,
                                 .replicas = replicas_,
                                 .collective = bound.collective,
                                 .collective_has_begun = std::exchange(bound.begun, false)};
    if (bound.stateful) {
      bound.stateful->run(*bound.state, kernel_call, bound.workspace);
    } else {
      call.run->run(kernel_call, bound.workspace);
    }
    if (check) check->look_at(bound.outputs);
  } catch (const Error& error) {
    const ErrorContext where(place_of(plan_, call), "running {}{}{}", call.op,
                             origin_word(call.origin), call.origin);
    throw Error(error.kind(), error.message());
  } catch (const InternalError&) {
    throw;
  } catch (const Aborted&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    // A library that a kernel calls.
    const ErrorContext where(place_of(plan_, call), "running {}{}{}", call.op,
                             call.origin.empty() ? "" : " of ", call.origin);
    fail(ErrorKind::user, "{} failed: {}", call.op, error.what());
  }
}

}  // namespace tessera::cpu
