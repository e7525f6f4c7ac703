#include "tessera/backend/cpu/lower/aliases.h"

#include <span>

#include "tessera/base/error.h"
#include "tessera/ops/forms.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

class AliasResolver {
 public:
  explicit AliasResolver(std::shared_ptr<const Graph> graph)
      : graph_(*graph), reads_(static_cast<size_t>(graph->value_count())) {
    draft_.graph = std::move(graph);
  }

  Draft resolve(const Schedule& schedule) {
    add_inputs_and_states();
    for (const NodeId id : schedule.load) add_load(id);
    for (const NodeId id : schedule.micro_batch) add_node(id);
    draft_.update_begin = draft_.calls.size();
    for (const NodeId id : schedule.update) add_node(id);
    for (const Output& output : graph_.outputs()) draft_.outputs.push_back(read(output.value));
    for (size_t i = 0; i < graph_.states().size(); ++i) {
      draft_.states[i].after_micro_batch = read(graph_.states()[i].after_micro_batch);
      draft_.states[i].after_update = read(graph_.states()[i].after_update);
    }
    return std::move(draft_);
  }

 private:
  Read& read(ValueId value) { return reads_[static_cast<size_t>(value.index)]; }

  BlockId add_value(ValueId value, Space space, int64_t index) {
    const BlockId block = draft_.add_block(graph_.type(value), value, space, index);
    read(value) = read_whole(draft_, block);
    return block;
  }

  void add_inputs_and_states() {
    for (const Input& input : graph_.inputs()) {
      const bool data = input.kind == InputKind::data;
      auto& list = data ? draft_.data_inputs : draft_.hyperparameters;
      list.push_back(add_value(input.value, data ? Space::data : Space::hyperparameter,
                               static_cast<int64_t>(list.size())));
    }
    for (const State& state : graph_.states()) {
      const auto index = static_cast<int64_t>(draft_.states.size());
      draft_.states.push_back({add_value(state.initial, Space::state, index), {}, {}});
    }
  }

  void add_load(NodeId id) {
    DraftCall call{id, {}, {}};
    for (const ValueId result : graph_.node(id).results) {
      call.outputs.push_back(add_value(result, Space::constant, constant_count_++));
    }
    draft_.load.push_back(std::move(call));
  }

  void add_node(NodeId id) {
    const Node& node = graph_.node(id);
    if (op(node).kind == Kind::view) return add_view(node);
    DraftCall call{id, {}, {}};
    for (const ValueId operand : node.operands) {
      call.inputs.push_back(operand.valid() ? read(operand) : Read{});
    }
    for (const ValueId result : node.results) {
      call.outputs.push_back(add_value(result, Space::arena, 0));
    }
    draft_.calls.push_back(std::move(call));
  }

  void add_view(const Node& node) {
    const ValueId operand = node.operands[0];
    const Geometry view = geometry_of_view(node);
    auto geometry = compose(read(operand).geometry, view);
    if (!geometry) {
      // Later views of the same operand find it dense.
      const BlockId copy = draft_.add_block(graph_.type(operand), operand);
      draft_.calls.push_back({{}, {read(operand)}, {copy}});
      read(operand) = read_whole(draft_, copy);
      geometry = compose(read(operand).geometry, view);
    }
    TESSERA_INVARIANT(geometry, "a view reaches outside its operand, {}",
                      to_string(graph_.type(operand)));
    read(node.results[0]) = {read(operand).block, node.results[0], *std::move(geometry)};
  }

  const Graph& graph_;
  Draft draft_;
  std::vector<Read> reads_;  // by value
  int64_t constant_count_ = 0;
};

}  // namespace

Draft resolve_aliases(std::shared_ptr<const Graph> graph, const Schedule& schedule) {
  return AliasResolver(std::move(graph)).resolve(schedule);
}

}  // namespace tessera::cpu
