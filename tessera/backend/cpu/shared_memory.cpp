#include "tessera/backend/cpu/shared_memory.h"

#include <algorithm>
#include <map>
#include <optional>

#include "tessera/backend/cpu/collectives.h"

namespace tessera::cpu {
namespace {

std::optional<size_t> state_in(const Plan& plan, const Place& place) {
  if (!place.buffer.valid() || plan.buffer(place.buffer).space != Space::state) return {};
  return static_cast<size_t>(plan.buffer(place.buffer).index);
}

// Finds out what is each replica's own, until nothing more follows.
class Division {
 public:
  Division(const Plan& plan, const std::vector<size_t>& differing, std::vector<bool>& own,
           std::vector<bool>& everywhere)
      : plan_(plan), own_(own), everywhere_(everywhere) {
    for (const size_t state : differing) own_[state] = true;
    for (size_t i = 0; i < plan.update_begin; ++i) {
      everywhere_[i] = true;
      for (const Place& place : plan.calls[i].outputs) {
        if (const auto state = state_in(plan, place)) own_[*state] = true;
      }
    }
    for (size_t i = plan.update_begin; i < plan.calls.size(); ++i) {
      for (const Place& place : plan.calls[i].outputs) writers_[place.buffer.index].push_back(i);
    }
  }

  void find() {
    do {
      changed_ = false;
      for (size_t i = plan_.calls.size(); i-- > plan_.update_begin;) look_at(i);
    } while (changed_);
  }

 private:
  void look_at(size_t number) {
    const Call& call = plan_.calls[number];
    const auto writes_own = [&](const Place& place) {
      const auto state = state_in(plan_, place);
      return state && own_[*state];
    };
    if (is_collective(plan_, call) ||
        std::any_of(call.outputs.begin(), call.outputs.end(), writes_own)) {
      set(everywhere_, number);
    }
    if (!everywhere_[number]) return;
    for (const Place& place : call.outputs) {
      if (const auto state = state_in(plan_, place)) set(own_, *state);
    }
    for (const Place& place : call.inputs) {
      if (place.buffer.valid()) need(place, number);
    }
  }

  // What a replica reads in an update it has made there itself. So it has a state that the update
  // writes, also later: nobody says when the first replica would.
  void need(const Place& place, size_t reader) {
    const auto at = writers_.find(place.buffer.index);
    if (at == writers_.end()) return;
    const bool is_state = state_in(plan_, place).has_value();
    for (const size_t writer : at->second) {
      if (is_state || writer < reader) set(everywhere_, writer);
    }
  }

  void set(std::vector<bool>& which, size_t index) {
    changed_ = changed_ || !which[index];
    which[index] = true;
  }

  const Plan& plan_;
  std::vector<bool>& own_;
  std::vector<bool>& everywhere_;
  std::map<int32_t, std::vector<size_t>> writers_;  // of the update, by buffer
  bool changed_ = false;
};

}  // namespace

SharedMemory::SharedMemory(const Plan& plan, int64_t replicas, const std::vector<size_t>& differing)
    : own_(plan.states.size(), false),
      everywhere_(plan.calls.size(), replicas == 1),
      hyperparameters_(plan.memory.hyperparameter_bytes),
      constants_(plan.memory.constant_bytes) {
  if (replicas > 1) Division(plan, differing, own_, everywhere_).find();
  int64_t shared_bytes = 0;
  for (size_t i = 0; i < plan.states.size(); ++i) {
    int64_t& end = own_[i] ? own_bytes_ : shared_bytes;
    offsets_.push_back(end);
    end += aligned(plan.buffer(plan.states[i].buffer).bytes);
  }
  states_ = Memory(shared_bytes);
}

}  // namespace tessera::cpu
