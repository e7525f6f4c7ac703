// What the tensors of a captured step are called: `input`, `input/1`, ...; `loss`; weights and
// buffers by their dotted names; `<scope>/<Op>:0` for what operators make, where the scope is the
// module's path; `Gradient___<parameter>`; `UpdatedVar___<weight>` for what a weight is after an
// update; `finalLossScale`, what the loss was multiplied with; learning rates and other numbers of
// the optimiser by the names that PopTorch's users know.
//
// Names depend on the program alone: compiling it again gives the same ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

struct TensorName {
  enum class Kind {
    value,          // of the graph, in every micro-batch
    updated,        // a state after weight updates: its index
    hyperparameter  // a number that is the optimiser's: its index in the list given
  };
  std::string name;
  Kind kind = Kind::value;
  ValueId value = {};
  size_t index = 0;
};

struct NamingRequest {
  std::vector<Output> gradients;  // as capture named them
  ValueId loss = {};              // of a training step
  ValueId final_loss_scale = {};  // where it is scaled
  std::vector<std::string> numbers;
  bool module_scopes = true;  // else operators' names have no path before them
};

class TensorNames {
 public:
  // `graph` is a captured step, with its update where it has one, before any pass.
  TensorNames(const Graph& graph, const NamingRequest& request);

  const std::vector<TensorName>& all() const { return names_; }
  std::vector<std::string> list() const;

  // Error, with the names most like it, where there is none of this name. Programs written for
  // early versions of PopTorch put `model.` before the names of parameters: it may be left out.
  const TensorName& find(std::string_view name) const;

 private:
  const TensorName* look_up(std::string_view name) const;
  void add(std::string name, ValueId value);
  void add_inputs(const Graph& graph);
  void add_states(const Graph& graph);
  void add_nodes(const Graph& graph, bool module_scopes);

  std::vector<TensorName> names_;
};

// A node's operator as part of a tensor's name: `max_pool` is `MaxPool`.
std::string operator_name(const Node& node);

// Where a node stands: `layer1/0/conv`, empty for what no module made.
std::string scope_of(const Node& node);

}  // namespace tessera
