#include "tessera/runtime/step_signature.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

// Whether there are updates and nothing that sums up gradients for them: each uses those of one
// micro-batch, which may not even be stored.
bool updates_every_micro_batch(const Graph& graph) {
  const auto& states = graph.states();
  const auto& nodes = graph.nodes();
  const bool sums_up = std::any_of(states.begin(), states.end(), [](const State& state) {
    return state.kind == StateKind::accumulator;
  });
  return !sums_up && std::any_of(nodes.begin(), nodes.end(),
                                 [](const Node& node) { return op(node).kind == Kind::update; });
}

void check_counts(const StepSignature& signature, const Graph& graph) {
  check(signature.gradient_accumulation >= 1 && signature.device_iterations >= 1, ErrorKind::value,
        "Device iterations and gradient accumulation must be at least 1, they are {} and {}.",
        signature.device_iterations, signature.gradient_accumulation);
  check(signature.gradient_accumulation == 1 || !updates_every_micro_batch(graph), ErrorKind::value,
        "This step keeps no sums of gradients: its gradient accumulation is 1, and cannot be {}.",
        signature.gradient_accumulation);
}

// Of one run: whoever makes room for its inputs and outputs multiplies.
void check_micro_batches(const StepSignature& signature) {
  constexpr int64_t most = int64_t{1} << 40;
  int64_t count = 0;
  const bool counted = !__builtin_mul_overflow(signature.device_iterations,
                                               signature.gradient_accumulation, &count) &&
                       !__builtin_mul_overflow(count, signature.replicas, &count);
  check(
      counted && count <= most, ErrorKind::value,
      "{} device iterations of {} accumulation steps in {} replicas are more micro-batches than a "
      "run can have.",
      signature.device_iterations, signature.gradient_accumulation, signature.replicas);
}

void check_replicas(const StepSignature& signature, const Graph& graph) {
  constexpr int64_t most = 1024;
  check(signature.replicas >= 1 && signature.replicas <= most, ErrorKind::value,
        "There must be between 1 and {} replicas, not {}.", most, signature.replicas);
  constexpr int64_t most_instances = 1 << 20;
  check(signature.instances >= 1 && signature.instances <= most_instances, ErrorKind::value,
        "There must be between 1 and {} instances, not {}.", most_instances, signature.instances);
  check(signature.instances == 1 || signature.grouped_states.empty(), ErrorKind::value,
        "States of groups of replicas cannot be shared by {} instances.", signature.instances);
  const auto check_groups = [&](const ReplicaGroups& groups, std::string_view what) {
    check(groups.divide(signature.replicas), ErrorKind::value,
          "{} replicas cannot be divided into groups of {} for {}.", signature.replicas,
          groups.size, what);
  };
  check_groups(signature.input_groups, "the inputs");
  check(signature.input_groups.size >= 1, ErrorKind::value,
        "A group that reads the same inputs has at least one replica.");
  for (const GroupedState& grouped : signature.grouped_states) {
    check(grouped.state < graph.states().size(), ErrorKind::value,
          "The signature names state {}, of which there are {}.", grouped.state,
          graph.states().size());
    check_groups(grouped.groups, graph.states()[grouped.state].name);
  }
}

void check_inputs(const StepSignature& signature, const StepSignature& wanted) {
  check(signature.inputs.size() == wanted.inputs.size(), ErrorKind::value,
        "The signature has {} inputs, the graph has {}.", signature.inputs.size(),
        wanted.inputs.size());
  for (size_t i = 0; i < wanted.inputs.size(); ++i) {
    const StepInput &given = signature.inputs[i], &input = wanted.inputs[i];
    check(given.name == input.name && given.type == input.type &&
              narrowed(given.host) == input.type.dtype,
          ErrorKind::value, "Input {} of the signature is '{}', {} from {}; in the graph '{}', {}.",
          i, given.name, to_string(given.type), name_of(given.host), input.name,
          to_string(input.type));
  }
}

void check_outputs(const StepSignature& signature, const StepSignature& wanted) {
  check(signature.outputs.size() == wanted.outputs.size(), ErrorKind::value,
        "The signature has {} outputs, the graph has {}.", signature.outputs.size(),
        wanted.outputs.size());
  for (size_t i = 0; i < wanted.outputs.size(); ++i) {
    const StepOutput &given = signature.outputs[i], &output = wanted.outputs[i];
    check(given.name == output.name && given.type == output.type, ErrorKind::value,
          "Output {} of the signature is '{}', {}; in the graph '{}', {}.", i, given.name,
          to_string(given.type), output.name, to_string(output.type));
    check(given.period >= 1, ErrorKind::value,
          "The period of output '{}' must be at least 1, not {}.", given.name, given.period);
  }
}

void check_index(size_t index, size_t count, std::string_view what) {
  check(index < count, ErrorKind::value, "The signature names {} {}, of which there are {}.", what,
        index, count);
}

void check_indices(const StepSignature& signature, const Graph& graph) {
  const size_t outputs = signature.outputs.size();
  for (const ReturnedTensor& tensor : signature.returned) {
    if (tensor.output) check_index(*tensor.output, outputs, "output");
  }
  for (const WrittenBack& changed : signature.written_back) {
    check_index(changed.input, signature.inputs.size(), "input");
    check_index(changed.output, outputs, "output");
  }
  for (const StepAnchor& anchor : signature.anchors) {
    if (anchor.source == StepAnchor::Source::output) check_index(anchor.index, outputs, "output");
    if (anchor.source == StepAnchor::Source::state) {
      check_index(anchor.index, graph.states().size(), "state");
    }
    check(anchor.period >= 1, ErrorKind::value,
          "The period of the anchored tensor '{}' must be at least 1, not {}.", anchor.name,
          anchor.period);
  }
}

}  // namespace

bool ReturnedTensor::operator==(const ReturnedTensor& other) const {
  const bool same_constant =
      constant && other.constant ? *constant == *other.constant : constant == other.constant;
  return same_constant && output == other.output && type == other.type && is_new == other.is_new;
}

const GroupedState* StepSignature::grouped(size_t state) const {
  const auto at = std::find_if(grouped_states.begin(), grouped_states.end(),
                               [&](const GroupedState& grouped) { return grouped.state == state; });
  return at == grouped_states.end() ? nullptr : &*at;
}

StepSignature signature_of(const Graph& graph, int64_t gradient_accumulation) {
  StepSignature signature;
  signature.gradient_accumulation = gradient_accumulation;
  for (const Input& input : graph.inputs()) {
    if (input.kind != InputKind::data) continue;
    const TensorType& type = graph.type(input.value);
    signature.inputs.push_back({input.name, type, type.dtype});
  }
  for (const Output& output : graph.outputs()) {
    signature.returned.push_back({.output = signature.outputs.size()});
    signature.outputs.push_back({output.name, graph.type(output.value)});
  }
  return signature;
}

void check_fits(const StepSignature& signature, const Graph& graph) {
  const StepSignature wanted = signature_of(graph);
  check_counts(signature, graph);
  check_replicas(signature, graph);
  check_micro_batches(signature);
  check_inputs(signature, wanted);
  check_outputs(signature, wanted);
  check_indices(signature, graph);
}

}  // namespace tessera
