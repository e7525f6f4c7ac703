// A compiled step: the Graph that was compiled, the Plan the CPU runs, and what goes in and out by
// name. Immutable; any number of sessions may use it at once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/backend/cpu/plan.h"
#include "tessera/ir/graph.h"

namespace tessera {

struct NamedType {
  std::string name;
  TensorType type;
};

struct StateInfo {
  std::string name;
  StateKind kind = StateKind::parameter;
  TensorType type;
};

class Executable {
 public:
  Executable(Graph graph, cpu::Plan plan);

  const Graph& graph() const { return graph_; }
  const cpu::Plan& plan() const { return plan_; }

  // In the graph's order.
  const std::vector<NamedType>& data_inputs() const { return data_inputs_; }
  const std::vector<NamedType>& hyperparameters() const { return hyperparameters_; }
  const std::vector<NamedType>& outputs() const { return outputs_; }
  const std::vector<StateInfo>& states() const { return states_; }

  // The kernels that were chosen by timing; given to another compilation of the graph, they are
  // taken again.
  const std::map<std::string, std::string>& tuned_kernels() const { return plan_.tuned; }

 private:
  Graph graph_;
  cpu::Plan plan_;
  std::vector<NamedType> data_inputs_, hyperparameters_, outputs_;
  std::vector<StateInfo> states_;
};

}  // namespace tessera
