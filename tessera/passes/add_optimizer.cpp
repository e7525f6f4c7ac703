#include "tessera/passes/add_optimizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_set>

#include "tessera/base/error.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/forms.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/split_names.h"

namespace tessera {
namespace {

constexpr std::string_view gradient_prefix = "Gradient___";
constexpr std::string_view accumulator_prefix = "Accum___";
constexpr std::string_view counter_name = "Counter___microBatches";

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
    check(spec.replicas >= 1, ErrorKind::value, "there must be at least one replica, not {}",
          spec.replicas);
    check(!spec.clip_norm || spec.replica_groups.empty(), ErrorKind::user,
          "max_grad_norm cannot be used with replicaGrouping: groups of replicas would scale the "
          "weights that they share differently; leave one of the two out");
  }

  void run() {
    check_groups();
    // All accumulation stands before all updates, in the order in which they run.
    if (is_running_mean()) count_micro_batches();
    for (const auto& group : spec_.groups) {
      for (const auto& name : group.parameters) accumulate(group, name);
    }
    if (is_running_mean()) forget_micro_batches();
    add_up_over_replicas();
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

  bool accumulates() const { return spec_.gradient_accumulation > 1; }
  bool is_running_mean() const {
    return accumulates() && spec_.mean_reduction && spec_.running_mean;
  }

  // What becomes of the mean so far, and of the next gradient, when that joins it.
  void count_micro_batches() {
    builder_.set_place({.file = {}, .module = {}, .backward = true}, Phase::micro_batch);
    const ValueId before =
        graph_.add_state(StateKind::accumulator, std::string(counter_name), {DType::f32, {}});
    const ValueId count = builder_.add("add", {before, builder_.scalar(1, DType::f32)});
    state(counter_name).after_micro_batch = count;
    kept_ = builder_.add("div", {before, count});
    joining_ = builder_.add("reciprocal", {count});
  }

  void forget_micro_batches() {
    builder_.set_place({}, Phase::update);
    state(counter_name).after_update = zeros({DType::f32, {}});
  }

  // Replaces a micro-batch's gradient by that of all micro-batches of the update.
  void accumulate(const UpdateSpec::Group& group, const std::string& name) {
    const auto gradient = gradients_.find(name);
    if (gradient == gradients_.end()) return;
    const TensorType type = graph_.type(state(name).initial);
    builder_.set_place({.file = {}, .module = module_of(name), .backward = true},
                       Phase::micro_batch);
    gradient->second = builder_.cast(gradient->second, type.dtype);
    TESSERA_INVARIANT(graph_.type(gradient->second) == type, "the gradient of '{}', {}, is {}",
                      name, to_string(type), to_string(graph_.type(gradient->second)));
    if (!accumulates()) return;
    const std::string accumulator = std::string(accumulator_prefix) + name;
    const DType dtype = group.as_parameters ? type.dtype : group.accumulator;
    ValueId so_far =
        in_single(graph_.add_state(StateKind::accumulator, accumulator, {dtype, type.shape}));
    ValueId joining = in_single(gradient->second);
    if (is_running_mean()) {
      so_far = builder_.add("mul", {so_far, kept_});
      joining = builder_.add("mul", {joining, joining_});
    }
    gradient->second = builder_.cast(builder_.add("add", {so_far, joining}), dtype);
    state(accumulator).after_micro_batch = gradient->second;
  }

  ValueId in_single(ValueId value) { return builder_.cast(value, DType::f32); }

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

  ValueId gradient_for_update(const UpdateSpec::Group& group, const std::string& name,
                              ValueId gradient) {
    gradient = clip_factor_.valid() ? builder_.add("mul", {gradient, clip_factor_})
                                    : whole_gradient(name, gradient);
    return group.maximize ? builder_.add("neg", {gradient}) : gradient;
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
      operands["grad"] = gradient_for_update(group, name, gradient->second);
      add_update(row, group, name, operands);
    }
  }

  // In the update phase: the mean or sum over micro-batches and replicas, of the loss as it was.
  // Leaves the accumulator empty.
  ValueId whole_gradient(const std::string& name, ValueId gradient) {
    if (accumulates()) {
      State& accumulator = state(std::string(accumulator_prefix) + name);
      accumulator.after_update = zeros(graph_.type(accumulator.initial));
    }
    if (summands() == 1 && !spec_.loss_scale.valid()) return in_single(gradient);
    ValueId factor = builder_.scalar(1.0 / static_cast<double>(summands()), DType::f32);
    if (spec_.loss_scale.valid()) factor = builder_.add("div", {factor, spec_.loss_scale});
    return builder_.add("mul", {in_single(gradient), factor});
  }

  // By how many a sum of gradients is divided.
  int64_t summands() const {
    if (!spec_.mean_reduction) return 1;
    return spec_.replicas * (spec_.running_mean ? 1 : spec_.gradient_accumulation);
  }

  // Gradients that are added up over the same groups of replicas, in one journey.
  struct Bundle {
    ReplicaGroups groups;
    DType dtype = DType::f32;
    std::vector<std::string> parameters = {};
    int64_t bytes = 0;
  };

  // Small ones travel together, because replicas wait for each other each time; but only with their
  // neighbours, whose gradients are whole at about the same time, so that most of them can be on
  // their way while others are still computed.
  void add_up_over_replicas() {
    constexpr int64_t most_bytes = 1 << 20;
    std::vector<Bundle> bundles;
    for (const auto& group : spec_.groups) {
      for (const auto& name : group.parameters) {
        const auto gradient = gradients_.find(name);
        const auto at = spec_.replica_groups.find(name);
        const ReplicaGroups groups =
            at == spec_.replica_groups.end() ? ReplicaGroups{} : at->second;
        if (gradient == gradients_.end() || groups.size_of(spec_.replicas) == 1) continue;
        const TensorType type{travels_as(group, name), graph_.type(gradient->second).shape};
        const bool fits = !bundles.empty() && bundles.back().groups == groups &&
                          bundles.back().dtype == type.dtype &&
                          bundles.back().bytes + bytes(type) <= most_bytes;
        Bundle& bundle = fits ? bundles.back() : bundles.emplace_back(Bundle{groups, type.dtype});
        bundle.parameters.push_back(name);
        bundle.bytes += bytes(type);
      }
    }
    for (const Bundle& bundle : bundles) add_up(bundle);
  }

  // As it is gathered.
  DType travels_as(const UpdateSpec::Group& group, const std::string& name) {
    const DType dtype =
        group.as_parameters ? graph_.type(state(name).initial).dtype : group.accumulator;
    return dtype == DType::f16 ? DType::f16 : DType::f32;
  }

  void add_up(const Bundle& bundle) {
    builder_.set_place({}, Phase::update);
    std::vector<ValueId> operands;
    for (const auto& name : bundle.parameters) {
      operands.push_back(builder_.cast(gradients_[name], bundle.dtype));
    }
    const auto sums = builder_.add_all(
        "all_reduce", std::move(operands),
        {{"group_size", bundle.groups.size}, {"orthogonal", bundle.groups.orthogonal}});
    for (size_t i = 0; i < sums.size(); ++i) gradients_[bundle.parameters[i]] = sums[i];
  }

  ValueId zeros(const TensorType& type) {
    return builder_.add("fill", {}, fill_attributes(type, 0));
  }

  DType memory_type(const UpdateSpec::Group& group, std::string_view operand,
                    DType parameter) const {
    if (group.as_parameters) return parameter;
    const auto at = group.memories.find(operand);
    return at == group.memories.end() ? DType::f32 : at->second;
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
        const TensorType own{memory_type(group, operand.name, type.dtype), type.shape};
        known[operand.name] =
            graph_.add_state(StateKind::optimizer, state_name,
                             operand.name == "step" ? TensorType{DType::f32, {}} : own);
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
  ValueId clip_factor_ = {};          // where there is clipping
  ValueId kept_ = {}, joining_ = {};  // factors of a running mean
};

}  // namespace

std::string gradient_name(std::string_view parameter) {
  return std::string(gradient_prefix) + std::string(parameter);
}

std::string_view parameter_of_state(std::string_view state) {
  constexpr std::string_view mark = "___";  // ends all prefixes
  const size_t at = state.find(mark);
  if (at == std::string_view::npos || state == counter_name) return {};
  return state.substr(at + mark.size());
}

void add_optimizer(Graph& graph, const UpdateSpec& spec) {
  const ErrorContext where("adding the optimiser to '{}'", graph.name);
  OptimizerBuilder(graph, spec).run();
}

}  // namespace tessera
