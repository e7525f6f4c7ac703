// A compiled step: the Graph that was compiled, the Plan the CPU runs, and what goes in and out by
// name. Immutable; any number of sessions may use it at once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/backend/cpu/plan.h"
#include "tessera/ir/graph.h"
#include "tessera/runtime/step_signature.h"

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
  // Error where the signature is not one of the graph.
  Executable(Graph graph, cpu::Plan plan, StepSignature signature);

  const Graph& graph() const { return graph_; }
  const cpu::Plan& plan() const { return plan_; }
  const StepSignature& signature() const { return signature_; }

  // In the graph's order.
  const std::vector<StepInput>& data_inputs() const { return signature_.inputs; }
  const std::vector<StepOutput>& outputs() const { return signature_.outputs; }
  const std::vector<NamedType>& hyperparameters() const { return hyperparameters_; }
  const std::vector<StateInfo>& states() const { return states_; }
  // What callers see of a state: where groups of replicas have values of their own, all of these in
  // a first dimension.
  TensorType host_type(size_t state) const;

  // The kernels that were chosen by timing; given to another compilation of the graph, they are
  // taken again.
  const std::map<std::string, std::string>& tuned_kernels() const { return plan_.tuned; }

 private:
  Graph graph_;
  cpu::Plan plan_;
  StepSignature signature_;
  std::vector<NamedType> hyperparameters_;
  std::vector<StateInfo> states_;
};

}  // namespace tessera
