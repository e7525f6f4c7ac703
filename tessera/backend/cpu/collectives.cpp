#include "tessera/backend/cpu/collectives.h"

#include <algorithm>

#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

bool touches(const std::vector<Place>& places, BufferId buffer) {
  return std::any_of(places.begin(), places.end(),
                     [&](const Place& place) { return place.buffer == buffer; });
}

bool touches(const Call& call, BufferId buffer) {
  return touches(call.inputs, buffer) || touches(call.outputs, buffer) || call.workspace == buffer;
}

// Memory that is this replica's alone, and of no use to anybody after the sum.
bool may_hold_sums(const Plan& plan, const Place& place) {
  if (!place.buffer.valid()) return false;
  const Buffer& buffer = plan.buffer(place.buffer);
  if (buffer.space == Space::arena) return !touches(plan.outputs, place.buffer);
  return buffer.space == Space::state &&
         plan.graph->states()[static_cast<size_t>(buffer.index)].kind == StateKind::accumulator;
}

bool is_dense(const Place& place) {
  return place.geometry.strides == contiguous_strides(place.geometry.shape);
}

// For one operand: the last call of a micro-batch that touches it.
std::optional<size_t> whole_after(const Plan& plan, size_t collective, size_t operand) {
  const Place& in = plan.calls[collective].inputs[operand];
  const Place& out = plan.calls[collective].outputs[operand];
  if (!may_hold_sums(plan, in) || !is_dense(in)) return {};
  const bool in_place = in.buffer == out.buffer;
  if (in_place && byte_offset(in) != byte_offset(out)) return {};
  for (size_t i = plan.update_begin; i < plan.calls.size(); ++i) {
    const Call& other = plan.calls[i];
    if (i == collective) continue;
    const bool before = i < collective;
    if (before ? touches(other, in.buffer) : !in_place && touches(other.inputs, in.buffer)) {
      return {};
    }
  }
  for (size_t i = plan.update_begin; i-- > 0;) {
    if (touches(plan.calls[i], in.buffer)) return i;
  }
  return {};
}

// Parameters whose gradients are equal may have one value between them. Of such a one, the sum of
// the first would be taken for the values of the second.
bool has_operand_twice(const Call& call) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (call.inputs[i].buffer == call.inputs[j].buffer) return true;
    }
  }
  return false;
}

std::optional<size_t> whole_after(const Plan& plan, size_t collective) {
  const Call& call = plan.calls[collective];
  if (collective < plan.update_begin || call.attrs.integer("group_size") != 0) return {};
  if (has_operand_twice(call)) return {};
  size_t last = 0;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const auto whole = whole_after(plan, collective, i);
    if (!whole) return {};
    last = std::max(last, *whole);
  }
  return last;
}

}  // namespace

bool is_collective(const Plan& plan, const Call& call) {
  return call.node.valid() && op(plan.graph->node(call.node)).kind == Kind::collective;
}

std::vector<Collective> collectives_of(const Plan& plan) {
  std::vector<Collective> found;
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    if (is_collective(plan, plan.calls[i])) found.push_back({i, whole_after(plan, i)});
  }
  return found;
}

}  // namespace tessera::cpu
