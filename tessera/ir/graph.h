// A Graph is one program as values: every value is made once, has a type and a shape, and is dense
// and row-major. Nodes stand in an order in which they can run.
//
// A step has two phases. Nodes of phase `micro_batch` run for every micro-batch; nodes of phase
// `update` run once after the last micro-batch of a weight update and may use the values of that
// micro-batch. What lives longer than a step is a State: its `initial` value is read by nodes, and
// at the end of each phase it takes the value named for that phase.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/ids.h"
#include "tessera/base/shape.h"
#include "tessera/base/source_place.h"
#include "tessera/ir/attributes.h"

namespace tessera {

enum class Phase : uint8_t { micro_batch, update };
enum class InputKind : uint8_t { data, hyperparameter };
enum class StateKind : uint8_t { parameter, buffer, optimizer, accumulator };

// Where the user wrote what became a node.
struct Origin {
  std::string file;
  int line = 0;
  std::string module;     // dotted path of the nn.Module whose forward was running
  bool backward = false;  // made by autograd for the operator at that place

  bool operator==(const Origin&) const = default;
};

inline SourcePlace source_place(const Origin& origin) {
  return {origin.file, origin.line, origin.module};
}

struct Node {
  std::string op;
  std::vector<ValueId> operands;  // an operand that was left out is not valid()
  std::vector<ValueId> results;
  Attrs attrs;
  Origin origin;
  Phase phase = Phase::micro_batch;
  int32_t stage = 0;  // pipeline stage
};

struct Value {
  TensorType type;
  NodeId producer;  // not valid() for inputs and states
};

struct Input {
  InputKind kind = InputKind::data;
  std::string name;
  ValueId value;
};

struct State {
  StateKind kind = StateKind::parameter;
  std::string name;
  ValueId initial;
  ValueId after_micro_batch;  // `initial` where a micro-batch does not change it
  ValueId after_update;       // `after_micro_batch` where an update does not change it
};

struct Output {
  std::string name;
  ValueId value;
};

class Graph {
 public:
  std::string name = "step";

  ValueId add_input(InputKind kind, std::string name, TensorType type);
  ValueId add_state(StateKind kind, std::string name, TensorType type);
  // `node.results` is filled in here, one value for each type.
  NodeId add_node(Node node, std::span<const TensorType> result_types);
  void add_output(std::string name, ValueId value);

  int32_t node_count() const { return static_cast<int32_t>(nodes_.size()); }
  int32_t value_count() const { return static_cast<int32_t>(values_.size()); }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<State>& states() const { return states_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  std::vector<State>& states() { return states_; }
  std::vector<Output>& outputs() { return outputs_; }

  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id.index)]; }
  Node& node(NodeId id) { return nodes_[static_cast<size_t>(id.index)]; }
  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id.index)]; }
  const TensorType& type(ValueId id) const { return value(id).type; }
  const Node* producer(ValueId id) const {
    const NodeId node_id = value(id).producer;
    return node_id.valid() ? &node(node_id) : nullptr;
  }
  const State* find_state(std::string_view state_name) const;

 private:
  ValueId add_value(TensorType type, NodeId producer);

  std::vector<Node> nodes_;
  std::vector<Value> values_;
  std::vector<Input> inputs_;
  std::vector<State> states_;
  std::vector<Output> outputs_;
};

// How often each value is used, by nodes, outputs and states.
std::vector<int32_t> count_uses(const Graph& graph);

std::string_view name_of(Phase phase);
std::string_view name_of(InputKind kind);
std::string_view name_of(StateKind kind);

}  // namespace tessera
