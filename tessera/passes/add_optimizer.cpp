#include "tessera/passes/add_optimizer.h"

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
constexpr std::string_view step_prefix = "Step___";

// What an optimiser's row calls its operands. `param` and `grad` are every optimiser's; a result of
// an operand's name is that operand's next value.
struct RememberedState {
  std::string_view operand;
  std::string_view prefix;  // of the state's name; the parameter's follows
  bool optional;            // only where UpdateSpec::Group::velocity asks for it
};
struct OptimizerForm {
  std::string_view op;
  std::vector<std::string_view> hyperparameters;
  std::vector<RememberedState> remembered;
  std::string_view step = {};  // the operand that counts updates, where there is one
};

const std::vector<OptimizerForm>& forms() {
  static const std::vector<OptimizerForm> table = {
      {.op = "sgd",
       .hyperparameters = {"learning_rate", "momentum", "dampening", "weight_decay"},
       .remembered = {{"velocity", "Accl___", true}},
       .step = "step"},
  };
  return table;
}

const OptimizerForm& form_of(std::string_view op) {
  std::vector<std::string_view> names;
  for (const OptimizerForm& form : forms()) {
    if (form.op == op) return form;
    names.push_back(form.op);
  }
  fail(ErrorKind::value, "there is no optimiser '{}'; there are {}", op, fmt::join(names, ", "));
}

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
    gradient->second = builder_.add("add", {so_far, gradient->second});
    state(accumulator).after_micro_batch = gradient->second;
  }

  void add_group(size_t g) {
    const UpdateSpec::Group& group = spec_.groups[g];
    const OptimizerForm& form = form_of(group.op);
    std::map<std::string, ValueId, std::less<>> hyperparameters;
    for (const std::string_view name : form.hyperparameters) {
      hyperparameters.emplace(
          name, graph_.add_input(InputKind::hyperparameter, fmt::format("{}.{}", name, g),
                                 {DType::f32, {}}));
    }
    for (const auto& name : group.parameters) {
      const auto gradient = gradients_.find(name);
      if (gradient == gradients_.end()) continue;
      builder_.set_place({.file = {}, .module = module_of(name)}, Phase::update);
      auto operands = hyperparameters;
      operands["param"] = state(name).after_micro_batch;  // forward may have changed it
      operands["grad"] = whole_gradient(name, gradient->second);
      add_update(form, group, name, operands);
    }
  }

  // In the update phase: the mean or sum over the micro-batches. Leaves the accumulator empty.
  ValueId whole_gradient(const std::string& name, ValueId gradient) {
    if (spec_.gradient_accumulation == 1) return gradient;
    const TensorType type = graph_.type(gradient);
    state(std::string(accumulator_prefix) + name).after_update =
        builder_.add("fill", {}, {{"shape", type.shape}, {"value", 0.0}, {"dtype", type.dtype}});
    if (!spec_.mean_reduction) return gradient;
    const double share = 1.0 / static_cast<double>(spec_.gradient_accumulation);
    return builder_.add("mul", {gradient, builder_.scalar(share, type.dtype)});
  }

  void add_update(const OptimizerForm& form, const UpdateSpec::Group& group,
                  const std::string& name, std::map<std::string, ValueId, std::less<>>& known) {
    std::map<std::string, std::string, std::less<>> states = {{"param", name}};
    for (const RememberedState& remembered : form.remembered) {
      if (remembered.optional && !group.velocity) continue;
      const std::string state_name = std::string(remembered.prefix) + name;
      const TensorType type = graph_.type(known.find("param")->second);
      known.emplace(remembered.operand, graph_.add_state(StateKind::optimizer, state_name, type));
      states.emplace(remembered.operand, state_name);
    }
    const bool remembers = states.size() > 1;
    if (!form.step.empty() && remembers) known.emplace(form.step, step_of(form.op));

    const OpDef& row = op(form.op);
    std::vector<ValueId> operands;
    for (const OperandSpec& operand : operand_specs(row)) {
      const auto at = known.find(operand.name);
      TESSERA_INVARIANT(at != known.end() || operand.optional, "nothing is known of {}'s '{}'",
                        row.name, operand.name);
      operands.push_back(at == known.end() ? ValueId{} : at->second);
    }
    const auto results = builder_.add_all(row.name, std::move(operands), group.attrs);
    const auto result_names = split_names(row.results);
    for (size_t i = 0; i < results.size(); ++i) {
      const auto at = states.find(result_names[i]);
      TESSERA_INVARIANT(at != states.end(), "{}'s result '{}' is no state", row.name,
                        result_names[i]);
      state(at->second).after_update = results[i];
    }
  }

  // How many updates there were, one count for all parameters of an optimiser.
  ValueId step_of(std::string_view op) {
    const std::string name = std::string(step_prefix) + std::string(op);
    if (const State* step = graph_.find_state(name)) return step->initial;
    const ValueId step = graph_.add_state(StateKind::optimizer, name, {DType::i32, {}});
    state(name).after_update = builder_.add("add", {step, builder_.scalar(1, DType::i32)});
    return step;
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
