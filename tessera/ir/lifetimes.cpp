#include "tessera/ir/lifetimes.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera {
namespace {

class Walk {
 public:
  Walk(const Graph& graph, const std::function<NodeMemory(const Node&)>& memory_of)
      : graph_(graph), memory_of_(memory_of) {
    result_.values.resize(static_cast<size_t>(graph.value_count()));
  }

  GraphLifetimes run() {
    put_in_order();
    begin_inputs_and_states();
    for (size_t i = 0; i < result_.order.size(); ++i) visit(static_cast<int32_t>(i));
    keep_what_leaves();
    add_up();
    return std::move(result_);
  }

 private:
  ValueLifetime& life(ValueId value) { return result_.values[static_cast<size_t>(value.index)]; }

  void put_in_order() {
    for (const Phase phase : {Phase::micro_batch, Phase::update}) {
      for (int32_t i = 0; i < graph_.node_count(); ++i) {
        if (graph_.node({i}).phase == phase) result_.order.push_back({i});
      }
      if (phase == Phase::micro_batch) micro_batch_end_ = position(result_.order.size()) - 1;
    }
  }

  static int32_t position(size_t i) { return static_cast<int32_t>(i); }

  void begin_inputs_and_states() {
    for (const Input& input : graph_.inputs()) life(input.value) = {input.value, Residence::input};
    for (const State& state : graph_.states()) {
      life(state.initial) = {state.initial, Residence::state};
    }
  }

  void visit(int32_t at) {
    const Node& node = graph_.node(result_.order[static_cast<size_t>(at)]);
    const NodeMemory memory = memory_of_ ? memory_of_(node) : NodeMemory::own;
    for (const ValueId operand : node.operands) {
      // To show a value is not to read it: whoever reads the view does.
      if (operand.valid() && memory != NodeMemory::view) need(operand, at);
    }
    for (const ValueId result : node.results) {
      if (memory == NodeMemory::view) {
        TESSERA_INVARIANT(!node.operands.empty() && node.operands[0].valid(), "a view of nothing");
        const ValueLifetime& shown = life(node.operands[0]);
        life(result) = {shown.base, shown.residence, at, at};
        continue;
      }
      const bool constant = memory == NodeMemory::constant;
      life(result) = {result, constant ? Residence::constant : Residence::temporary, at, at};
    }
  }

  void need(ValueId value, int32_t at) {
    life(value).last = std::max(life(value).last, at);
    ValueLifetime& base = life(life(value).base);
    base.last = std::max(base.last, at);
  }

  void keep_what_leaves() {
    const int32_t end = position(result_.order.size()) - 1;
    for (const Output& output : graph_.outputs()) need(output.value, micro_batch_end_);
    for (const State& state : graph_.states()) {
      if (state.after_micro_batch != state.initial) need(state.after_micro_batch, micro_batch_end_);
      if (state.after_update != state.after_micro_batch) need(state.after_update, end);
    }
  }

  void add_up() {
    std::vector<int64_t> change(result_.order.size() + 1, 0);
    for (int32_t i = 0; i < graph_.value_count(); ++i) {
      const ValueLifetime& value = life({i});
      if (value.base != ValueId{i}) continue;
      const int64_t size = bytes(graph_.type({i}));
      switch (value.residence) {
        case Residence::input:
          result_.input_bytes += size;
          break;
        case Residence::state:
          result_.state_bytes += size;
          break;
        case Residence::constant:
          result_.constant_bytes += size;
          break;
        case Residence::temporary:
          change[static_cast<size_t>(value.first)] += size;
          change[static_cast<size_t>(value.last) + 1] -= size;
          break;
      }
    }
    int64_t alive = 0;
    for (size_t i = 0; i < result_.order.size(); ++i) {
      alive += change[i];
      result_.alive_bytes.push_back(alive);
      if (result_.peak >= 0 && alive <= result_.peak_bytes) continue;
      result_.peak_bytes = alive;
      result_.peak = position(i);
    }
  }

  const Graph& graph_;
  const std::function<NodeMemory(const Node&)>& memory_of_;
  int32_t micro_batch_end_ = -1;
  GraphLifetimes result_;
};

}  // namespace

GraphLifetimes lifetimes(const Graph& graph,
                         const std::function<NodeMemory(const Node&)>& memory_of) {
  return Walk(graph, memory_of).run();
}

}  // namespace tessera
