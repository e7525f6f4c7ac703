#include "tessera/runtime/program_key.h"

#include <map>
#include <span>

#include "tessera/base/digest.h"
#include "tessera/ir/fused_body.h"

// Structures are taken apart by all of their members here: whoever adds one finds this file.

namespace tessera {
namespace {

template <typename T>
void add_all(Digest& digest, const std::vector<T>& items) {
  digest.add(items.size());
  for (const T& item : items) digest.add(item);
}

void add_type(Digest& digest, const TensorType& type) {
  digest.add(type.dtype);
  add_all(digest, type.shape);
}

void add_blob(Digest& digest, const Blob& blob) {
  digest.add(blob ? blob->size() + 1 : 0);
  if (blob) digest.add_bytes(*blob);
}

void add_attrs(Digest& digest, const Attrs& attrs);

void add_body_value(Digest& digest, const BodyValue& value) {
  const auto& [from, index, number, dtype] = value;
  digest.add(from).add(index).add(number).add(dtype);
}

void add_body_step(Digest& digest, const BodyStep& step) {
  const auto& [op, arguments, attrs, dtype] = step;
  digest.add(op).add(dtype).add(arguments.size());
  for (const BodyValue& argument : arguments) add_body_value(digest, argument);
  add_attrs(digest, attrs);
}

void add_body_result(Digest& digest, const BodyResult& result) {
  const auto& [value, summed, dims, keepdim] = result;
  add_body_value(digest, value);
  digest.add(summed).add(keepdim);
  add_all(digest, dims);
}

void add_body(Digest& digest, const FusedBody& body) {
  const auto& [steps, results] = body;
  digest.add(steps.size()).add(results.size());
  for (const BodyStep& step : steps) add_body_step(digest, step);
  for (const BodyResult& result : results) add_body_result(digest, result);
}

struct AddAttr {
  Digest& digest;

  template <typename T>
  void operator()(const T& value) const {
    digest.add(value);
  }
  template <typename T>
  void operator()(const std::vector<T>& values) const {
    add_all(digest, values);
  }
  void operator()(const Blob& blob) const { add_blob(digest, blob); }
  void operator()(const std::shared_ptr<const FusedBody>& body) const { add_body(digest, *body); }
};

void add_attrs(Digest& digest, const Attrs& attrs) {
  for (const auto& [name, value] : attrs) {
    digest.add(name).add(value.index());
    std::visit(AddAttr{digest}, value);
  }
  digest.add("");  // there is no attribute of that name
}

// Lines by their order: another file, or a line more above, gives the same numbers.
class LineNumbers {
 public:
  size_t operator()(const Origin& origin) {
    const SourceLine line{origin.file, origin.line};
    const auto [at, is_new] = numbers_.try_emplace(line, lines_.size());
    if (is_new) lines_.push_back(line);
    return at->second;
  }
  std::vector<SourceLine> lines() && { return std::move(lines_); }

 private:
  std::map<SourceLine, size_t> numbers_;
  std::vector<SourceLine> lines_;
};

void add_node(Digest& digest, const Graph& graph, const Node& node, LineNumbers& lines) {
  const auto& [op, operands, results, attrs, origin, phase, stage] = node;
  digest.add(op).add(operands.size()).add(results.size());
  for (const ValueId operand : operands) digest.add(operand.index);
  for (const ValueId result : results) {
    digest.add(result.index);
    add_type(digest, graph.type(result));
  }
  digest.add(phase).add(stage);
  digest.add(lines(origin)).add(origin.module).add(origin.backward);
  add_attrs(digest, attrs);
}

void add_input(Digest& digest, const Graph& graph, const Input& input) {
  const auto& [kind, name, value] = input;
  digest.add(kind).add(name).add(value.index);
  add_type(digest, graph.type(value));
}

void add_state(Digest& digest, const Graph& graph, const State& state) {
  const auto& [kind, name, initial, after_micro_batch, after_update] = state;
  digest.add(kind).add(name).add(initial.index);
  digest.add(after_micro_batch.index).add(after_update.index);
  add_type(digest, graph.type(initial));
}

void add_graph(Digest& digest, const Graph& graph) {
  LineNumbers lines;
  digest.add(graph.inputs().size()).add(graph.states().size());
  digest.add(graph.nodes().size()).add(graph.outputs().size());
  for (const Input& input : graph.inputs()) add_input(digest, graph, input);
  for (const State& state : graph.states()) add_state(digest, graph, state);
  for (const Node& node : graph.nodes()) add_node(digest, graph, node, lines);
  for (const Output& output : graph.outputs()) digest.add(output.name).add(output.value.index);
}

void add_step_input(Digest& digest, const StepInput& input) {
  const auto& [name, type, host] = input;
  digest.add(name).add(host);
  add_type(digest, type);
}

void add_step_output(Digest& digest, const StepOutput& output) {
  const auto& [name, type, mode, period] = output;
  digest.add(name).add(mode).add(period);
  add_type(digest, type);
}

void add_returned(Digest& digest, const ReturnedTensor& returned) {
  const auto& [output, type, constant, is_new] = returned;
  digest.add(output.has_value()).add(output.value_or(0)).add(is_new);
  add_type(digest, type);
  add_blob(digest, constant);
}

void add_anchor(Digest& digest, const StepAnchor& anchor) {
  const auto& [name, tensor, source, index, mode, period] = anchor;
  digest.add(name).add(tensor).add(source).add(index).add(mode).add(period);
}

void add_groups(Digest& digest, const ReplicaGroups& groups) {
  const auto& [size, orthogonal] = groups;
  digest.add(size).add(orthogonal);
}

void add_grouped_state(Digest& digest, const GroupedState& grouped) {
  const auto& [state, groups, of_every_replica] = grouped;
  digest.add(state).add(of_every_replica);
  add_groups(digest, groups);
}

void add_signature(Digest& digest, const StepSignature& signature) {
  const auto& [accumulation, iterations, replicas, instances, input_groups, inputs, outputs,
               returned, structure, back, anchors, grouped_states] = signature;
  digest.add(accumulation).add(iterations).add(replicas).add(instances);
  digest.add(inputs.size()).add(outputs.size());
  digest.add(returned.size()).add(structure).add(back.size()).add(anchors.size());
  add_groups(digest, input_groups);
  digest.add(grouped_states.size());
  for (const GroupedState& grouped : grouped_states) add_grouped_state(digest, grouped);
  for (const StepInput& input : inputs) add_step_input(digest, input);
  for (const StepOutput& output : outputs) add_step_output(digest, output);
  for (const ReturnedTensor& tensor : returned) add_returned(digest, tensor);
  for (const WrittenBack& written : back) digest.add(written.input).add(written.output);
  for (const StepAnchor& anchor : anchors) add_anchor(digest, anchor);
}

void add_target(Digest& digest, const cpu::Target& target) {
  const auto& [level, disabled_kernels, precise, autotune] = target;
  digest.add(level).add(precise).add(autotune);
  add_all(digest, disabled_kernels);
}

void add_halves(Digest& digest, const HalfArithmetic& halves) {
  const auto& [rounding, matmul_partials, convolution_partials] = halves;
  digest.add(rounding).add(matmul_partials).add(convolution_partials);
}

}  // namespace

std::string program_key(const Graph& graph, const StepSignature& signature) {
  Digest digest;
  add_graph(digest, graph);
  add_signature(digest, signature);
  return digest.hex();
}

std::string compile_key(const std::string& program, const CompileOptions& options) {
  const auto& [disabled_passes, verify, keep_operators, halves, target, tuned, threads, lines,
               progress] = options;
  Digest digest;
  digest.add(program).add(keep_operators);
  add_all(digest, disabled_passes);
  add_halves(digest, halves);
  add_target(digest, target);
  return digest.hex();
}

std::vector<SourceLine> source_lines(const Graph& graph) {
  LineNumbers lines;
  for (const Node& node : graph.nodes()) lines(node.origin);
  return std::move(lines).lines();
}

}  // namespace tessera
