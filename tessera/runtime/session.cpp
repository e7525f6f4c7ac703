#include "tessera/runtime/session.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/float_pair.h"
#include "tessera/base/log.h"
#include "tessera/ops/host_call.h"

namespace tessera {

Session::Session(std::shared_ptr<const Executable> executable, int threads,
                 InstancesOfProgram joined)
    : executable_(std::move(executable)),
      joined_(joined),
      group_(static_cast<int>(executable_->signature().replicas), joined) {
  const int64_t instances = joined.instances ? joined.instances->count() : 1;
  check(executable_->signature().instances == instances, ErrorKind::value,
        "The program was compiled for {} instances, and cannot run in {}.",
        executable_->signature().instances, instances);
  const int replicas = group_.size(), threads_of_each = std::max(threads / replicas, 1);
  const cpu::Plan& plan = executable_->plan();
  std::vector<size_t> differing;
  for (const GroupedState& grouped : executable_->signature().grouped_states) {
    differing.push_back(grouped.state);
  }
  shared_ = std::make_shared<const cpu::SharedMemory>(plan, replicas, differing);
  if (threads > threads_of_each) {
    update_pool_ = std::make_unique<ThreadPool>(threads, plan.target.level);
  }
  const bool is_alone = replicas == 1 && !joined.instances;
  if (replicas > 1) runners_ = std::make_unique<ThreadPool>(replicas, plan.target.level);
  for (int i = 0; i < replicas; ++i) {
    replicas_.push_back(std::make_unique<Replica>(*executable_, threads_of_each,
                                                  is_alone ? nullptr : &group_.member(i), shared_,
                                                  i == 0 ? update_pool_.get() : nullptr));
  }
  check_host_calls_can_run(executable_->graph());
}

void Session::trace_to(const std::string& path) {
  if (path.empty()) return;
  trace_ = std::make_unique<TraceFile>(path, executable_->plan(), replicas_[0]->threads());
  record(&trace_->timeline());
}

void Session::write_state(size_t index, std::span<const std::byte> value) {
  TESSERA_INVARIANT(index < executable_->states().size(), "state {}", index);
  const auto one = static_cast<size_t>(bytes(executable_->states()[index].type));
  const GroupedState* grouped = executable_->signature().grouped(index);
  const bool of_replicas = grouped && value.size() == one * replicas_.size();
  const size_t wanted =
      grouped ? one * static_cast<size_t>(grouped->groups.count(group_.size())) : one;
  check(value.size() == wanted || of_replicas, ErrorKind::value,
        "The value for '{}' ({}) must have {} bytes, not {}.", executable_->states()[index].name,
        to_string(executable_->host_type(index)), wanted, value.size());
  ++weights_written_;
  for (size_t r = 0; r < replicas_.size(); ++r) {
    if (!replicas_[r]->engine().owns_state(index)) continue;
    const size_t number = grouped ? number_of_value(*grouped, r, of_replicas) : 0;
    replicas_[r]->write_state(index, value.subspan(number * one, one));
  }
}

// Which of the values of a state of groups is a replica's, where there is one for each group or one
// for each replica.
size_t Session::number_of_value(const GroupedState& grouped, size_t replica,
                                bool of_replicas) const {
  const int64_t group = grouped.groups.group_of(static_cast<int64_t>(replica), group_.size());
  const int64_t first = grouped.groups.member(group, 0, group_.size());
  return static_cast<size_t>(of_replicas ? first : group);
}

void Session::read_state(size_t index, std::span<std::byte> value) const {
  TESSERA_INVARIANT(index < executable_->states().size(), "state {}", index);
  const auto one = static_cast<size_t>(bytes(executable_->states()[index].type));
  const auto wanted = static_cast<size_t>(bytes(executable_->host_type(index)));
  check(value.size() == wanted, ErrorKind::value,
        "The room for '{}' ({}) must have {} bytes, not {}.", executable_->states()[index].name,
        to_string(executable_->host_type(index)), wanted, value.size());
  const GroupedState* grouped = executable_->signature().grouped(index);
  if (!grouped) return replicas_[0]->read_state(index, value);
  for (size_t i = 0; i * one < wanted; ++i) {
    const int64_t first = grouped->groups.member(static_cast<int64_t>(i), 0, group_.size());
    const size_t replica = grouped->of_every_replica ? i : static_cast<size_t>(first);
    replicas_[replica]->read_state(index, value.subspan(i * one, one));
  }
}

void Session::read_state_of(size_t replica, size_t index, std::span<std::byte> value) const {
  TESSERA_INVARIANT(index < executable_->states().size(), "state {}", index);
  TESSERA_INVARIANT(replica < replicas_.size(), "replica {} of {}", replica, replicas_.size());
  TESSERA_INVARIANT(value.size() == static_cast<size_t>(bytes(executable_->states()[index].type)),
                    "{} bytes for state {}", value.size(), index);
  replicas_[replica]->read_state(index, value);
}

void Session::set_hyperparameter(size_t index, double value) {
  TESSERA_INVARIANT(index < executable_->hyperparameters().size(), "hyper-parameter {}", index);
  const NamedType& input = executable_->hyperparameters()[index];
  const FloatPair pair(value);
  const auto size = static_cast<size_t>(bytes(input.type));
  TESSERA_INVARIANT(input.type.dtype == DType::f32 && size <= sizeof pair, "'{}' is {}", input.name,
                    to_string(input.type));
  std::memcpy(replicas_[0]->engine().hyperparameter(index), &pair, size);  // all have this one
}

std::vector<cpu::HostCallTime> Session::host_calls() const {
  std::vector<cpu::HostCallTime> times = replicas_[0]->engine().host_calls();
  for (size_t r = 1; r < replicas_.size(); ++r) {
    for (size_t i = 0; i < times.size(); ++i) {
      const cpu::HostCallTime& more = replicas_[r]->engine().host_calls()[i];
      times[i].runs += more.runs;
      times[i].nanoseconds += more.nanoseconds;
    }
  }
  return times;
}

void Session::check_values(bool check) {
  for (const auto& replica : replicas_) replica->engine().check_values(check);
}

void Session::check_calls(bool check) {
  for (const auto& replica : replicas_) replica->engine().check_calls(check);
}

void Session::set_rng(RngState rng) {
  for (const auto& replica : replicas_) replica->set_rng(rng);
}

void Session::run(const RunRequest& request) {
  const RunExtent extent = extent_of(request);
  check_request(request, extent);
  if (!joined_.instances) return run_replicas(request, extent);
  try {
    join_steps(request, extent);
    run_replicas(request, extent);
  } catch (const std::bad_alloc&) {
    joined_.instances->fail("it has run out of memory");
    group_.reset();
    throw;
  } catch (const std::exception& error) {
    joined_.instances->fail(error.what());
    group_.reset();  // what was begun with others will not end
    throw;
  } catch (...) {
    joined_.instances->fail("it was interrupted");
    group_.reset();
    throw;
  }
}

void Session::run_replicas(const RunRequest& request, const RunExtent& extent) {
  try {
    if (replicas_.size() == 1) {
      replicas_[0]->run(request, extent, request.poll);
    } else {
      run_together(request, extent);
    }
  } catch (...) {
    begin_anew();
    throw;
  }
}

// The instances begin with the same weights, and compare what else an update depends on.
void Session::join_steps(const RunRequest& request, const RunExtent& extent) {
  if (weights_written_ != weights_agreed_) take_weights_of_first(request);
  weights_agreed_ = weights_written_;
  group_.begin_steps({.weights = weights_written_,
                      .numbers = digest_of_numbers(),
                      .iterations = static_cast<uint32_t>(extent.device_iterations)},
                     request.poll);
}

// Those of the first instance are everybody's: from different ones each would train another model.
void Session::take_weights_of_first(const RunRequest& request) {
  Instances& instances = *joined_.instances;
  for (size_t i = 0; i < executable_->states().size(); ++i) {
    const StateInfo& state = executable_->states()[i];
    const bool is_shared = state.kind == StateKind::parameter || state.kind == StateKind::optimizer;
    if (!is_shared) continue;  // statistics are each replica's own
    std::vector<std::byte> own(static_cast<size_t>(bytes(state.type)));
    read_state(i, own);
    std::vector<std::byte> first = own;
    instances.broadcast(fmt::format("comparing '{}' of '{}', written from outside", state.name,
                                    executable_->graph().name),
                        first, 0, request.poll);
    if (first == own) continue;
    log(LogLevel::warn,
        "instance {} has other values of '{}' than instance 0: it goes on with those of instance 0",
        instances.index(), state.name);
    for (const auto& replica : replicas_) {
      if (replica->engine().owns_state(i)) replica->write_state(i, first);
    }
  }
}

uint32_t Session::digest_of_numbers() const {
  uint32_t digest = 2166136261U;
  for (size_t i = 0; i < executable_->hyperparameters().size(); ++i) {
    const auto size = static_cast<size_t>(bytes(executable_->hyperparameters()[i].type));
    const std::byte* number = replicas_[0]->engine().hyperparameter(i);
    for (size_t k = 0; k < size; ++k) {
      digest = (digest ^ static_cast<uint32_t>(number[k])) * 16777619U;
    }
  }
  return digest;
}

// Each in a thread of its own, since none ends before all have come to their end. The first is the
// caller's, which is the only one that poll() may be asked in.
void Session::run_together(const RunRequest& request, const RunExtent& extent) {
  std::vector<std::exception_ptr> errors(replicas_.size());
  const std::function<void()> check_others = [this] {
    if (group_.is_aborted()) throw Aborted();
  };
  const std::function<void()> check_and_poll = [&] {
    if (request.poll) request.poll();
    check_others();
  };
  const std::thread::id caller = std::this_thread::get_id();
  bool caller_came = false;
  std::atomic<size_t> others = 0;
  // Who has failed is free to take another one, perhaps even the first.
  const auto take = [&](bool is_caller) {
    if (is_caller && !std::exchange(caller_came, true)) return size_t{0};
    return ++others % replicas_.size();
  };
  runners_->run(static_cast<int64_t>(replicas_.size()), [&](int64_t) {
    const bool is_caller = std::this_thread::get_id() == caller;
    const size_t i = take(is_caller);
    try {
      check_others();
      replicas_[i]->run(request, extent, is_caller ? check_and_poll : check_others);
      group_.member(static_cast<int>(i)).barrier();
    } catch (const Aborted&) {
      // The one that failed says why.
    } catch (...) {
      errors[i] = std::current_exception();
      group_.abort();
    }
  });
  group_.reset();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// Replicas that were stopped may have drawn from steps that others had not come to.
void Session::begin_anew() {
  RngState rng = replicas_[0]->rng();
  for (const auto& replica : replicas_) {
    replica->clear_accumulators();
    rng.step = std::max(rng.step, replica->rng().step);
  }
  set_rng(rng);
}

RunExtent Session::extent_of(const RunRequest& request) const {
  RunExtent extent = executable_->signature().extent();
  extent.device_iterations = request.device_iterations.value_or(extent.device_iterations);
  return extent;
}

void Session::check_request(const RunRequest& request, const RunExtent& extent) const {
  TESSERA_INVARIANT(request.inputs.size() == executable_->data_inputs().size() &&
                        request.outputs.size() == executable_->outputs().size(),
                    "{} inputs and {} outputs, the executable has {} and {}", request.inputs.size(),
                    request.outputs.size(), executable_->data_inputs().size(),
                    executable_->outputs().size());
  check(extent.device_iterations >= 1, ErrorKind::value,
        "Device iterations must be at least 1, they are {}.", extent.device_iterations);
  const int64_t wanted = request.gradient_accumulation.value_or(extent.gradient_accumulation);
  check(wanted == extent.gradient_accumulation, ErrorKind::value,
        "This step was compiled with a gradient accumulation of {}, and cannot run with {}.",
        extent.gradient_accumulation, wanted);
  TESSERA_INVARIANT(
      request.times.empty() ||
          request.times.size() == static_cast<size_t>(extent.of_a_replica() * extent.replicas),
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

}  // namespace tessera
