#include "tessera/ir/verify.h"

#include "tessera/base/error.h"
#include "tessera/ir/text.h"

namespace tessera {
namespace {

using Place = BrokenPromise::Place;

class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph), made_in_(static_cast<size_t>(graph.value_count())) {}

  std::optional<BrokenPromise> run() {
    check_inputs();
    check_nodes();
    check_states();
    check_outputs();
    check_values();
    return broken_;
  }

 private:
  void check_inputs() {
    for (size_t i = 0; i < graph_.inputs().size() && !broken_; ++i) {
      at(Place::input, i);
      define(graph_.inputs()[i].value, {}, Phase::micro_batch);
    }
    for (size_t i = 0; i < graph_.states().size() && !broken_; ++i) {
      at(Place::state, i);
      define(graph_.states()[i].initial, {}, Phase::micro_batch);
    }
  }

  void check_nodes() {
    for (size_t i = 0; i < graph_.nodes().size() && !broken_; ++i) {
      at(Place::node, i);
      const Node& node = graph_.nodes()[i];
      expect(!node.op.empty(), "a node has no operator");
      for (const ValueId operand : node.operands) {
        if (operand.valid()) use(operand, node.phase);
      }
      for (const ValueId result : node.results) {
        define(result, {static_cast<int32_t>(i)}, node.phase);
      }
    }
  }

  void check_states() {
    for (size_t i = 0; i < graph_.states().size() && !broken_; ++i) {
      at(Place::state, i);
      const State& state = graph_.states()[i];
      take(state, state.after_micro_batch, Phase::micro_batch);
      take(state, state.after_update, Phase::update);
    }
  }

  void take(const State& state, ValueId value, Phase phase) {
    if (!use(value, phase)) return;
    const TensorType& want = graph_.type(state.initial);
    const TensorType& got = graph_.type(value);
    expect(want == got, "state '{}' is {} but takes %{}, which is {}", state.name, to_string(want),
           value.index, to_string(got));
  }

  void check_outputs() {
    for (size_t i = 0; i < graph_.outputs().size() && !broken_; ++i) {
      at(Place::output, i);
      use(graph_.outputs()[i].value, Phase::micro_batch);
    }
  }

  void check_values() {
    for (int32_t i = 0; i < graph_.value_count() && !broken_; ++i) {
      at(Place::value, static_cast<size_t>(i));
      expect(made_in_[static_cast<size_t>(i)].has_value(), "value %{} is made by nothing", i);
    }
  }

  // A value comes into being here.
  void define(ValueId id, NodeId producer, Phase phase) {
    if (!in_range(id)) return;
    auto& made_in = made_in_[static_cast<size_t>(id.index)];
    expect(!made_in, "value %{} is made twice", id.index);
    expect(graph_.value(id).producer == producer, "value %{} does not know its producer", id.index);
    made_in = phase;
    const TensorType& type = graph_.type(id);
    expect(narrowed(type.dtype) == type.dtype, "value %{} is {}, a type that graphs do not hold",
           id.index, name_of(type.dtype));
    for (const int64_t size : type.shape) {
      expect(size >= 0, "value %{} has the negative size {}", id.index, size);
    }
  }

  bool use(ValueId id, Phase phase) {
    if (!in_range(id)) return false;
    const auto& made_in = made_in_[static_cast<size_t>(id.index)];
    expect(made_in.has_value(), "value %{} is used before it is made", id.index);
    expect(phase == Phase::update || made_in != Phase::update,
           "value %{} exists only after an update but a micro-batch uses it", id.index);
    return !broken_;
  }

  bool in_range(ValueId id) {
    expect(id.valid() && id.index < graph_.value_count(), "there is no value %{}", id.index);
    return !broken_;
  }

  void at(Place place, size_t index) {
    place_ = place;
    index_ = static_cast<int32_t>(index);
  }

  template <typename... Args>
  void expect(bool ok, fmt::format_string<Args...> text, Args&&... args) {
    if (ok || broken_) return;
    broken_ = {fmt::format(text, std::forward<Args>(args)...), place_, index_};
  }

  const Graph& graph_;
  std::vector<std::optional<Phase>> made_in_;  // by value; nothing until it is made
  std::optional<BrokenPromise> broken_;
  Place place_ = Place::value;
  int32_t index_ = 0;
};

}  // namespace

std::optional<BrokenPromise> find_broken_promise(const Graph& graph) {
  return Verifier(graph).run();
}

void verify_structure(const Graph& graph) {
  const auto broken = find_broken_promise(graph);
  if (!broken) return;
  const bool at_node = broken->place == Place::node;
  TESSERA_UNREACHABLE("in graph '{}': {}{}", graph.name, broken->what,
                      at_node ? " at " + print_node(graph, graph.node({broken->index})) : "");
}

}  // namespace tessera
