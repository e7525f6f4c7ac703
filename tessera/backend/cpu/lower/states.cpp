#include "tessera/backend/cpu/lower/states.h"

#include <algorithm>

#include "tessera/backend/cpu/lower/in_place.h"

namespace tessera::cpu {
namespace {

bool unchanged(const Draft& draft, const DraftState& state, const Read& after) {
  return after.block == state.initial && whole(draft, after);
}

bool same(const Read& a, const Read& b) {
  return a.block == b.block && same_elements(a.geometry, b.geometry);
}

bool reads(const DraftCall& call, BlockId block) {
  return std::any_of(call.inputs.begin(), call.inputs.end(),
                     [&](const Read& read) { return read.block == block; });
}

// Whether the old value of a state is wanted after the state may have taken its new one: as an
// output, by an update although micro-batches change it, or as another state's (or in another
// order its own) new value.
bool wanted_late(const Draft& draft, size_t index) {
  const DraftState& state = draft.states[index];
  const bool changes_early = !unchanged(draft, state, state.after_micro_batch);
  if (!changes_early && unchanged(draft, state, state.after_update)) return false;
  const auto is_old = [&](const Read& read) { return read.block == state.initial; };
  for (const DraftState& other : draft.states) {
    const bool own = &other == &state;
    if (is_old(other.after_micro_batch) && !(own && !changes_early)) return true;
    if (is_old(other.after_update)) return true;
  }
  if (!changes_early) return false;
  if (std::any_of(draft.outputs.begin(), draft.outputs.end(), is_old)) return true;
  return std::any_of(draft.calls.begin() + static_cast<std::ptrdiff_t>(draft.update_begin),
                     draft.calls.end(),
                     [&](const DraftCall& call) { return reads(call, state.initial); });
}

// Such an old value is saved by the first call, and everybody reads the saved one.
void save_old_values(Draft& draft) {
  for (size_t i = 0; i < draft.states.size(); ++i) {
    if (!wanted_late(draft, i)) continue;
    const BlockId old = draft.states[i].initial;
    const BlockId saved = draft.add_block(draft.block(old).type, draft.block(old).value);
    draft.block(saved).layout = draft.block(old).layout;
    const auto redirect = [&](Read& read) {
      if (read.block == old) read.block = saved;
    };
    for (DraftCall& call : draft.calls)
      std::for_each(call.inputs.begin(), call.inputs.end(), redirect);
    std::for_each(draft.outputs.begin(), draft.outputs.end(), redirect);
    for (size_t k = 0; k < draft.states.size(); ++k) {
      DraftState& state = draft.states[k];
      const bool keeps = k == i && unchanged(draft, state, state.after_micro_batch);
      if (!keeps) redirect(state.after_micro_batch);
      redirect(state.after_update);
    }
    draft.calls.insert(draft.calls.begin(), DraftCall{{}, {read_whole(draft, old)}, {saved}});
    ++draft.update_begin;
  }
}

struct Producer {
  size_t call = 0, result = 0;
  bool found = false;
};

Producer find_producer(const Draft& draft, BlockId block, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    const auto& outputs = draft.calls[i].outputs;
    const auto at = std::find(outputs.begin(), outputs.end(), block);
    if (at != outputs.end()) return {i, static_cast<size_t>(at - outputs.begin()), true};
  }
  return {};
}

// Whether `after` may be made in the memory of `state` by a call of this phase.
bool fits_in_place(const Draft& draft, const DraftState& state, const Read& after, bool update) {
  if (!whole(draft, after) || draft.home(after.block) != after.block) return false;
  if (after.layout != draft.block(state.initial).layout) return false;
  const size_t begin = update ? draft.update_begin : 0;
  const size_t end = update ? draft.calls.size() : draft.update_begin;
  const Producer producer = find_producer(draft, after.block, begin, end);
  if (!producer.found) return false;
  if (!may_write_over(draft, draft.calls[producer.call], producer.result, state.initial)) {
    return false;
  }
  const auto in_state = [&](const Read& read) {
    return read.block.valid() && draft.home(read.block) == state.initial;
  };
  for (size_t i = producer.call + 1; i < draft.calls.size(); ++i) {
    if (std::any_of(draft.calls[i].inputs.begin(), draft.calls[i].inputs.end(), in_state)) {
      return false;
    }
  }
  if (update) return true;
  // The update would overwrite it before another state's copy at the end of the update reads it.
  const bool changes_again = !same(state.after_update, after);
  return !changes_again ||
         std::none_of(draft.states.begin(), draft.states.end(), [&](const DraftState& other) {
           return other.after_update.block == after.block;
         });
}

}  // namespace

void settle_states(Draft& draft) {
  save_old_values(draft);
  std::vector<DraftCall> copies[2];
  for (const bool update : {false, true}) {
    for (const DraftState& state : draft.states) {
      const Read& after = update ? state.after_update : state.after_micro_batch;
      if (unchanged(draft, state, after)) continue;
      if (update && same(after, state.after_micro_batch)) continue;
      if (fits_in_place(draft, state, after, update)) {
        draft.block(after.block).home = state.initial;
      } else {
        copies[update ? 1 : 0].push_back({{}, {after}, {state.initial}});
      }
    }
  }
  draft.calls.insert(draft.calls.end(), copies[1].begin(), copies[1].end());
  draft.calls.insert(draft.calls.begin() + static_cast<std::ptrdiff_t>(draft.update_begin),
                     copies[0].begin(), copies[0].end());
  draft.update_begin += copies[0].size();
}

}  // namespace tessera::cpu
