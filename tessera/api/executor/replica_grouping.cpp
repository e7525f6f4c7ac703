#include "tessera/api/executor/replica_grouping.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "tessera/api/spoken.h"
#include "tessera/base/error.h"
#include "tessera/passes/add_optimizer.h"
#include "tessera/torch/dispatch.h"

namespace tessera {

void ReplicaGroupings::add(const NamedTensor& parameter, CommGroupType type, int64_t shards,
                           VariableRetrievalMode mode) {
  tessera::check(parameter.tensor.dim() > 0,
                 "replicaGrouping: '{}' is a scalar, and has no dimension for the groups",
                 parameter.name);
  const bool all = type == CommGroupType::all, none = type == CommGroupType::none;
  tessera::check(all || none || shards >= 1,
                 "replicaGrouping: shards is the number of replicas in a group, which cannot be {}",
                 shards);
  const ReplicaGroups groups{all ? 0 : none ? 1 : shards, type == CommGroupType::orthogonal};
  groupings_[parameter.name] = {groups, mode == VariableRetrievalMode::all_replicas};
}

void ReplicaGroupings::check(const std::vector<NamedTensor>& parameters, int64_t replicas) const {
  for (const auto& [name, tensor] : parameters) {
    const auto at = groupings_.find(name);
    if (at == groupings_.end()) continue;
    const Grouping& grouping = at->second;
    tessera::check(grouping.groups.divide(replicas),
                   "replicaGrouping: {} replicas cannot be divided into groups of {}; shards is "
                   "the number of replicas in a group",
                   replicas, grouping.groups.size);
    const int64_t count = grouping.groups.count(replicas);
    const int64_t values = tensor.dim() == 0 ? -1 : tensor.size(0);
    // As it is after it was read.
    const bool of_every_replica = grouping.of_every_replica && values == replicas;
    tessera::check(values == count || of_every_replica,
                   "replicaGrouping: '{}' must have {} in dimension 0, one for each group of {} "
                   "replicas, but its shape is {}",
                   name, count, replicas, spoken_sizes(tensor.sizes()));
  }
}

std::map<std::string, ReplicaGroups> ReplicaGroupings::groups() const {
  std::map<std::string, ReplicaGroups> groups;
  for (const auto& [name, grouping] : groupings_) groups[name] = grouping.groups;
  return groups;
}

std::vector<GroupedState> ReplicaGroupings::states_of(const Graph& graph) const {
  std::vector<GroupedState> grouped;
  for (size_t i = 0; i < graph.states().size(); ++i) {
    const State& state = graph.states()[i];
    const bool own = state.kind == StateKind::parameter || state.kind == StateKind::buffer;
    const auto at = groupings_.find(own ? state.name : std::string(parameter_of_state(state.name)));
    if (at == groupings_.end()) continue;
    grouped.push_back({i, at->second.groups, at->second.of_every_replica});
  }
  return grouped;
}

ValuesOfOneGroup::ValuesOfOneGroup(const ReplicaGroupings& groupings,
                                   const std::vector<NamedTensor>& parameters) {
  const NotRecorded quiet;
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : parameters) {
    if (!groupings.has(name)) continue;
    wholes_.push_back({tensor, tensor.detach()});
    // A copy: the values of the other groups, behind a view, would be a constant of the program.
    tensor.set_data(tensor.detach().select(0, 0).clone());
  }
}

ValuesOfOneGroup::~ValuesOfOneGroup() {
  const NotRecorded quiet;
  const at::NoGradGuard no_grad;
  for (const auto& [parameter, values] : wholes_) parameter.set_data(values);
}

}  // namespace tessera
