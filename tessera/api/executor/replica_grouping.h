// Weights of which not all replicas have the same value: dimension 0 of such a weight counts groups
// of replicas, each of which has a value of its own. Forward does not see that dimension.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/api/options/option_enums.h"
#include "tessera/base/replica_groups.h"
#include "tessera/runtime/step_signature.h"
#include "tessera/torch/recorder.h"

namespace tessera {

// Whose value is read of a weight that groups of replicas have each for themselves.
enum class VariableRetrievalMode { one_per_group = 0, all_replicas = 2 };
template <>
inline constexpr std::string_view enum_name<VariableRetrievalMode> = "VariableRetrievalMode";

class ReplicaGroupings {
 public:
  // `shards` is the number of replicas in a group; it is not looked at for groups of all or of one.
  // Error for a parameter without dimensions, and for numbers that cannot be.
  void add(const NamedTensor& parameter, CommGroupType type, int64_t shards,
           VariableRetrievalMode mode);

  // Error where a parameter does not have a value for each of its groups.
  void check(const std::vector<NamedTensor>& parameters, int64_t replicas) const;

  // By parameter.
  std::map<std::string, ReplicaGroups> groups() const;
  // The states of a program that have a value for each group: parameters, and what an optimiser
  // remembers for them.
  std::vector<GroupedState> states_of(const Graph& graph) const;

  bool has(const std::string& parameter) const { return groupings_.contains(parameter); }

 private:
  struct Grouping {
    ReplicaGroups groups;
    bool of_every_replica = false;
  };
  std::map<std::string, Grouping> groupings_;
};

// While it lives, grouped parameters of a module are as one replica sees them.
class ValuesOfOneGroup {
 public:
  ValuesOfOneGroup(const ReplicaGroupings& groupings, const std::vector<NamedTensor>& parameters);
  ~ValuesOfOneGroup();
  ValuesOfOneGroup(const ValuesOfOneGroup&) = delete;
  ValuesOfOneGroup& operator=(const ValuesOfOneGroup&) = delete;

 private:
  struct Whole {
    at::Tensor parameter, values;
  };
  std::vector<Whole> wholes_;
};

}  // namespace tessera
