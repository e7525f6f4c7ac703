#include "tessera/passes/scale_loss.h"

#include <algorithm>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/ir/rewrite.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"
#include "tessera/passes/add_optimizer.h"

namespace tessera {
namespace {

constexpr double greatest_half = 65504;
constexpr double smallest_normal_half = 0x1p-14;

constexpr std::string_view above_name = "Counter___gradientsAboveEdge";
const TensorType number{DType::f32, {}};

// What the nodes that are made here say they belong to.
const Origin origin{.file = {}, .module = "loss_scaling", .backward = true};

std::vector<bool> computed_from(const Graph& graph, ValueId value) {
  std::vector<bool> is(static_cast<size_t>(graph.value_count()), false);
  const auto at = [&](ValueId id) { return is[static_cast<size_t>(id.index)]; };
  is[static_cast<size_t>(value.index)] = true;
  for (const Node& node : graph.nodes()) {
    const bool reads = std::any_of(node.operands.begin(), node.operands.end(),
                                   [&](ValueId operand) { return operand.valid() && at(operand); });
    if (!reads) continue;
    for (const ValueId result : node.results) is[static_cast<size_t>(result.index)] = true;
  }
  return is;
}

std::vector<bool> needed_for_gradients(const Graph& graph) {
  std::vector<bool> is(static_cast<size_t>(graph.value_count()), false);
  for (const Output& output : graph.outputs()) {
    if (output.name.starts_with(gradient_name(""))) {
      is[static_cast<size_t>(output.value.index)] = true;
    }
  }
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    const bool needed =
        std::any_of(node->results.begin(), node->results.end(),
                    [&](ValueId result) { return is[static_cast<size_t>(result.index)]; });
    if (!needed) continue;
    for (const ValueId operand : node->operands) {
      if (operand.valid()) is[static_cast<size_t>(operand.index)] = true;
    }
  }
  return is;
}

// Values of half precision on the way from the loss's gradient to those of parameters.
std::vector<bool> half_gradients(const Graph& graph, ValueId loss_gradient) {
  std::vector<bool> is = computed_from(graph, loss_gradient);
  const std::vector<bool> needed = needed_for_gradients(graph);
  for (size_t i = 0; i < is.size(); ++i) {
    const ValueId value{static_cast<int32_t>(i)};
    is[i] = is[i] && needed[i] && graph.type(value).dtype == DType::f16;
  }
  return is;
}

// Else the elements of its results are those of its operands.
bool makes_elements(const Node& node) {
  const OpDef& row = op(node);
  return row.kind != Kind::view && !row.traits.moves_elements;
}

State& state_named(Graph& graph, std::string_view name) {
  const auto at = std::find_if(graph.states().begin(), graph.states().end(),
                               [&](const State& state) { return state.name == name; });
  TESSERA_INVARIANT(at != graph.states().end(), "there is no state '{}'", name);
  return *at;
}

// Adds up how many elements of tensors are of a kind, as the graph grows.
class Counts {
 public:
  explicit Counts(Graph& graph) : builder_(graph) {
    builder_.set_place(origin, Phase::micro_batch);
  }

  void look_at(ValueId half) {
    magnitude_ = builder_.add("abs", {builder_.cast(half, DType::f32)});
  }
  // Of the tensor that was looked at last. What is no number is not below anything.
  void add_not_below(double limit, ValueId& total) {
    add(builder_.add("where", {below(limit), zero(), one()}), total);
  }
  void add_between_zero_and(double limit, ValueId& total) {
    const ValueId is_zero = builder_.add("eq", {magnitude_, zero()});
    const ValueId not_zero = builder_.add("where", {is_zero, zero(), one()});
    add(builder_.add("where", {below(limit), not_zero, zero()}), total);
  }

 private:
  ValueId below(double limit) {
    return builder_.add("lt", {magnitude_, builder_.scalar(limit, DType::f32)});
  }
  ValueId zero() { return zero_.valid() ? zero_ : zero_ = builder_.scalar(0, DType::f32); }
  ValueId one() { return one_.valid() ? one_ : one_ = builder_.scalar(1, DType::f32); }
  void add(ValueId ones, ValueId& total) {
    const ValueId count = builder_.add("sum", {ones});
    total = total.valid() ? builder_.add("add", {total, count}) : count;
  }

  Builder builder_;
  ValueId magnitude_, zero_, one_;
};

class LossScaler {
 public:
  LossScaler(Graph& graph, const ScaleLossSpec& spec, ValueId loss_gradient)
      : graph_(graph), spec_(spec), loss_gradient_(loss_gradient) {
    scale_.of_half = graph.type(loss_gradient).dtype == DType::f16;
    half_ = half_gradients(graph, loss_gradient);
    if (spec.scaled) scaling_ = graph.add_input(InputKind::hyperparameter, "loss_scaling", number);
    if (!spec.automatic) return;
    factor_ = graph.add_state(StateKind::optimizer, std::string(loss_scale_factor_name), number);
    if (spec.gradient_accumulation > 1) {
      above_before_ = graph.add_state(StateKind::accumulator, std::string(above_name), number);
    }
  }

  LossScale run(ValueId& loss) {
    Rewriter r(graph_);
    Counts counts(r.new_graph());
    for (const Node& node : graph_.nodes()) {
      r.copy(node);
      for (const ValueId result : node.results) {
        if (result == loss_gradient_) {
          if (spec_.scaled) multiply(r, result);
        } else if (half_[static_cast<size_t>(result.index)] && makes_elements(node)) {
          count(r, node, result, counts);
        }
      }
    }
    TESSERA_INVARIANT(!spec_.scaled || scale_.divisor.valid(), "backward begins nowhere");
    const ValueId before = above_before_.valid() ? r.map(above_before_) : ValueId{};
    loss = r.map(loss);
    graph_ = r.finish();
    if (before.valid()) add_to(before);
    scale_.counted *= spec_.gradient_accumulation;
    return scale_;
  }

 private:
  void multiply(Rewriter& r, ValueId loss_gradient) {
    Builder builder(r.new_graph());
    builder.set_place(origin, Phase::micro_batch);
    scale_.final_scale = r.map(scaling_);
    if (spec_.automatic) {
      scale_.final_scale = builder.add("mul", {scale_.final_scale, r.map(factor_)});
    }
    const ValueId ones = r.map(loss_gradient);
    const ValueId factor = builder.cast(scale_.final_scale, builder.type(ones).dtype);
    scale_.divisor = builder.cast(factor, DType::f32);
    r.replace(loss_gradient, builder.add("mul", {ones, factor}));
  }

  // Beside the node that made the gradient, so that it need not be kept.
  void count(Rewriter& r, const Node& node, ValueId gradient, Counts& counts) {
    const bool tracked =
        spec_.automatic && (!spec_.products_only || op(node).kind == Kind::contraction);
    if (!tracked && !spec_.statistics) return;
    counts.look_at(r.map(gradient));
    if (tracked) {
      counts.add_not_below(spec_.edge * greatest_half, scale_.above);
      scale_.counted += numel(graph_.type(gradient).shape);
    }
    if (!spec_.statistics) return;
    counts.add_not_below(std::numeric_limits<double>::infinity(), scale_.overflowed);
    counts.add_between_zero_and(smallest_normal_half, scale_.underflowed);
  }

  // Over the micro-batches of an update.
  void add_to(ValueId before) {
    Builder builder(graph_);
    builder.set_place(origin, Phase::micro_batch);
    if (scale_.above.valid()) scale_.above = builder.add("add", {before, scale_.above});
    State& state = state_named(graph_, above_name);
    state.after_micro_batch = scale_.above.valid() ? scale_.above : before;
    state.after_update = state.after_micro_batch;
  }

  Graph& graph_;
  const ScaleLossSpec& spec_;
  const ValueId loss_gradient_;
  std::vector<bool> half_;
  ValueId scaling_, factor_, above_before_;
  LossScale scale_;
};

}  // namespace

bool has_half_gradients(const Graph& graph, ValueId loss_gradient) {
  const std::vector<bool> half = half_gradients(graph, loss_gradient);
  return std::find(half.begin(), half.end(), true) != half.end();
}

LossScale scale_loss(Graph& graph, const ScaleLossSpec& spec, ValueId loss_gradient,
                     ValueId& loss) {
  const ErrorContext where("scaling the loss of '{}'", graph.name);
  return LossScaler(graph, spec, loss_gradient).run(loss);
}

void add_loss_scale_update(Graph& graph, const LossScale& scale, const LossScaleRule& rule) {
  if (!scale.above.valid()) return;
  Builder builder(graph);
  builder.set_place({.file = {}, .module = origin.module}, Phase::update);
  const auto constant = [&](double value) { return builder.scalar(value, DType::f32); };
  const ValueId factor = state_named(graph, loss_scale_factor_name).initial;

  // All replicas see the same number, and so they go on with the same scale.
  ValueId above = rule.replicas > 1 ? builder.add("all_reduce", {scale.above}) : scale.above;
  ValueId due;  // where this is not so after every update
  if (rule.period > 1) {
    const ValueId updates_before =
        graph.add_state(StateKind::optimizer, "lossScaleUpdatesSince", number);
    const ValueId above_before =
        graph.add_state(StateKind::optimizer, "lossScaleAboveEdge", number);
    const ValueId updates = builder.add("add", {updates_before, constant(1)});
    above = builder.add("add", {above_before, above});
    due = builder.add("ge", {updates, constant(static_cast<double>(rule.period))});
    const auto unless_due = [&](ValueId value) {
      return builder.add("where", {due, constant(0), value});
    };
    state_named(graph, "lossScaleUpdatesSince").after_update = unless_due(updates);
    state_named(graph, "lossScaleAboveEdge").after_update = unless_due(above);
  }
  const double looked_at = static_cast<double>(scale.counted) * static_cast<double>(rule.replicas) *
                           static_cast<double>(rule.period);
  const ValueId too_many = builder.add("gt", {above, constant(rule.proportion * looked_at)});
  const double greatest = scale.of_half ? rule.greatest_of_half : rule.greatest;
  const ValueId is_great =
      builder.add("gt", {builder.add("mul", {scale.final_scale, constant(2)}), constant(greatest)});
  const ValueId more =
      builder.add("where", {is_great, factor, builder.add("mul", {factor, constant(2)})});
  const ValueId less = builder.add("mul", {factor, constant(0.5)});
  ValueId next = builder.add("where", {too_many, less, more});
  if (due.valid()) next = builder.add("where", {due, next, factor});
  state_named(graph, loss_scale_factor_name).after_update = next;
  // Nothing of this update is left for the next.
  const auto counter = std::find_if(graph.states().begin(), graph.states().end(),
                                    [](const State& state) { return state.name == above_name; });
  if (counter != graph.states().end()) counter->after_update = constant(0);
}

}  // namespace tessera
