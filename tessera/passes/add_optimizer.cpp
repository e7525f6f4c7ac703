#include "tessera/passes/add_optimizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_set>

#include "tessera/base/error.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/split_names.h"

namespace tessera {
namespace {

constexpr std::string_view gradient_prefix = "Gradient___";
constexpr std::string_view accumulator_prefix = "Accum___";

// What the states are called that hold an operand of an optimiser's row; the parameter's name
// follows.
std::string_view prefix_of(std::string_view operand) {
  static const std::map<std::string_view, std::string_view> prefixes = {
      {"step", "Step___"},
      {"velocity", "Accl___"},
      {"first_moment", "Accl1___"},
      {"second_moment", "Accl2___"},
      {"mean_square", "Accl1___"},
      {"mean_gradient", "Accl2___"},
      {"momentum_buffer", "Accl3___"},
  };
  const auto at = prefixes.find(operand);
  TESSERA_INVARIANT(at != prefixes.end(), "states for '{}' have no name", operand);
  return at->second;
}

// An optimiser's row. `param` and `grad` are every optimiser's operands; a result of an operand's
// name is that operand's next value, so that the operand is a state; all others are numbers.
struct OptimizerRow {
  const OpDef& def;
  std::vector<OperandSpec> operands = operand_specs(def);
  std::vector<std::string> results = split_names(def.results);

  explicit OptimizerRow(std::string_view name) : def(find(name)) {}

  bool is_state(std::string_view operand) const {
    return std::find(results.begin(), results.end(), operand) != results.end();
  }

 private:
  static const OpDef& find(std::string_view name) {
    const OpDef* row = find_op(name);
    if (row && row->kind == Kind::update) return *row;
    std::vector<std::string_view> names;
    for (const OpDef* other : all_ops()) {
      if (other->kind == Kind::update) names.push_back(other->name);
    }
    fail(ErrorKind::value, "there is no optimiser '{}'; there are {}", name,
         fmt::join(names, ", "));
  }
};

// The module that a parameter belongs to: what profiles and messages show for its update.
std::string module_of(std::string_view parameter) {
  const size_t dot = parameter.rfind('.');
  return std::string(dot == std::string_view::npos ? "" : parameter.substr(0, dot));
}

class OptimizerBuilder {
 public:
  OptimizerBuilder(Graph& graph, const UpdateSpec& spec)
      : graph_(graph), builder_(graph), spec_(spec), gradients_(take_gradients()) {
    check(spec.gradient_accumulation >= 1, ErrorKind::value,
          "gradient accumulation must be at least 1, not {}", spec.gradient_accumulation);
  }

  void run() {
    check_groups();
    // All accumulation stands before all updates, in the order in which they run.
    for (const auto& group : spec_.groups) {
      for (const auto& name : group.parameters) accumulate(name);
    }
    if (spec_.clip_norm) clip();
    for (size_t g = 0; g < spec_.groups.size(); ++g) add_group(g);
  }

 private:
  // Removes the gradient outputs; the gradients by parameter.
  std::map<std::string, ValueId> take_gradients() {
    std::map<std::string, ValueId> gradients;
    auto& outputs = graph_.outputs();
    for (const auto& output : outputs) {
      if (!output.name.starts_with(gradient_prefix)) continue;
      gradients[output.name.substr(gradient_prefix.size())] = output.value;
    }
    outputs.erase(std::remove_if(outputs.begin(), outputs.end(),
                                 [](const Output& output) {
                                   return output.name.starts_with(gradient_prefix);
                                 }),
                  outputs.end());
    return gradients;
  }

  void check_groups() const {
    std::unordered_set<std::string_view> seen;
    for (const auto& group : spec_.groups) {
      for (const auto& name : group.parameters) {
        check(seen.insert(name).second, ErrorKind::value,
              "parameter '{}' is in more than one optimiser group", name);
        check(graph_.find_state(name), ErrorKind::value,
              "the optimiser was given a parameter '{}' that the model does not have", name);
      }
    }
  }

  // Replaces a micro-batch's gradient by that of all micro-batches of the update.
  void accumulate(const std::string& name) {
    const auto gradient = gradients_.find(name);
    if (gradient == gradients_.end()) return;
    const TensorType type = graph_.type(state(name).initial);
    builder_.set_place({.file = {}, .module = module_of(name), .backward = true},
                       Phase::micro_batch);
    gradient->second = builder_.cast(gradient->second, type.dtype);
    TESSERA_INVARIANT(graph_.type(gradient->second) == type, "the gradient of '{}', {}, is {}",
                      name, to_string(type), to_string(graph_.type(gradient->second)));
    if (spec_.gradient_accumulation == 1) return;
    const std::string accumulator = std::string(accumulator_prefix) + name;
    const ValueId so_far = graph_.add_state(StateKind::accumulator, accumulator, type);
    if (spec_.mean_reduction && spec_.running_mean) gradient->second = share_of(gradient->second);
    gradient->second = builder_.add("add", {so_far, gradient->second});
    state(accumulator).after_micro_batch = gradient->second;
  }

  // The factor of all gradients; it needs every one of them whole before the first update.
  void clip() {
    const TensorType number{DType::f32, {2}};
    std::vector<ValueId> operands = {
        graph_.add_input(InputKind::hyperparameter, "max_grad_norm", number)};
    for (const auto& group : spec_.groups) {
      for (const auto& name : group.parameters) {
        const auto gradient = gradients_.find(name);
        if (gradient == gradients_.end()) continue;
        builder_.set_place({.file = {}, .module = module_of(name)}, Phase::update);
        gradient->second = whole_gradient(name, gradient->second);
        operands.push_back(gradient->second);
      }
    }
    builder_.set_place({}, Phase::update);
    clip_factor_ = builder_.add("clip_factor", std::move(operands));
  }

  ValueId gradient_for_update(const std::string& name, ValueId gradient) {
    if (!clip_factor_.valid()) return whole_gradient(name, gradient);
    return builder_.add("mul", {gradient, clip_factor_});
  }

  void add_group(size_t g) {
    const UpdateSpec::Group& group = spec_.groups[g];
    const OptimizerRow row(group.op);
    std::map<std::string, ValueId, std::less<>> numbers;
    for (const OperandSpec& operand : row.operands) {
      if (operand.name == "grad" || row.is_state(operand.name)) continue;
      numbers.emplace(operand.name,
                      graph_.add_input(InputKind::hyperparameter,
                                       fmt::format("{}.{}", operand.name, g), {DType::f32, {2}}));
    }
    for (const auto& name : group.parameters) {
      const auto gradient = gradients_.find(name);
      if (gradient == gradients_.end()) continue;
      builder_.set_place({.file = {}, .module = module_of(name)}, Phase::update);
      auto operands = numbers;
      operands["param"] = state(name).after_micro_batch;  // forward may have changed it
      operands["grad"] = gradient_for_update(name, gradient->second);
      add_update(row, group, name, operands);
    }
  }

  // In the update phase: the mean or sum over the micro-batches. Leaves the accumulator empty.
  ValueId whole_gradient(const std::string& name, ValueId gradient) {
    if (spec_.gradient_accumulation == 1) return gradient;
    const TensorType type = graph_.type(gradient);
    state(std::string(accumulator_prefix) + name).after_update =
        builder_.add("fill", {}, {{"shape", type.shape}, {"value", 0.0}, {"dtype", type.dtype}});
    return spec_.mean_reduction && !spec_.running_mean ? share_of(gradient) : gradient;
  }

  ValueId share_of(ValueId gradient) {
    const double share = 1.0 / static_cast<double>(spec_.gradient_accumulation);
    const DType dtype = graph_.type(gradient).dtype;
    return builder_.add("mul", {gradient, builder_.scalar(share, dtype)});
  }

  void add_update(const OptimizerRow& row, const UpdateSpec::Group& group, const std::string& name,
                  std::map<std::string, ValueId, std::less<>>& known) {
    std::map<std::string, std::string, std::less<>> states = {{"param", name}};
    const TensorType type = graph_.type(known.find("param")->second);
    std::vector<ValueId> operands;
    for (const OperandSpec& operand : row.operands) {
      if (!known.contains(operand.name) && (!operand.optional || group.velocity)) {
        const std::string state_name = std::string(prefix_of(operand.name)) + name;
        // A narrower type than f32 would soon stop counting.
        known[operand.name] =
            graph_.add_state(StateKind::optimizer, state_name,
                             operand.name == "step" ? TensorType{DType::f32, {}} : type);
        states.emplace(operand.name, state_name);
      }
      const auto at = known.find(operand.name);
      operands.push_back(at == known.end() ? ValueId{} : at->second);
    }
    const auto results = builder_.add_all(row.def.name, std::move(operands), group.attrs);
    for (size_t i = 0; i < results.size(); ++i) {
      const auto at = states.find(row.results[i]);
      TESSERA_INVARIANT(at != states.end(), "{}'s result '{}' is no state", row.def.name,
                        row.results[i]);
      state(at->second).after_update = results[i];
    }
  }

  State& state(std::string_view name) {
    auto& states = graph_.states();
    const auto at = std::find_if(states.begin(), states.end(),
                                 [&](const State& state) { return state.name == name; });
    TESSERA_INVARIANT(at != states.end(), "there is no state '{}'", name);
    return *at;
  }

  Graph& graph_;
  Builder builder_;
  const UpdateSpec& spec_;
  std::map<std::string, ValueId> gradients_;
  ValueId clip_factor_ = {};  // where there is clipping
};

}  // namespace

std::string gradient_name(std::string_view parameter) {
  return std::string(gradient_prefix) + std::string(parameter);
}

void add_optimizer(Graph& graph, const UpdateSpec& spec) {
  const ErrorContext where("adding the optimiser to '{}'", graph.name);
  OptimizerBuilder(graph, spec).run();
}

}  // namespace tessera
