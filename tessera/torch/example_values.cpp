#include "tessera/torch/example_values.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tessera/ops/registry.h"
#include "tessera/passes/remove_dead.h"
#include "tessera/runtime/environment.h"
#include "tessera/runtime/session.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/dispatch.h"
#include "tessera/torch/narrowing.h"

namespace tessera {
namespace {

// What is needed for one value.
Graph part_for(const Graph& whole, ValueId value) {
  Graph part = whole;
  part.outputs() = {{"0", value}};
  for (State& state : part.states()) state.after_micro_batch = state.after_update = state.initial;
  remove_dead(part);
  return part;
}

bool follows_from_inputs(const Graph& part) {
  const std::vector<int32_t> uses = count_uses(part);
  for (const State& state : part.states()) {
    // A state itself names its value twice.
    if (uses[static_cast<size_t>(state.initial.index)] > 2) return false;
  }
  return std::none_of(part.nodes().begin(), part.nodes().end(), [](const Node& node) {
    return op(node).kind == Kind::random || op(node).traits.reads_random_state ||
           node.attrs.has("key");
  });
}

}  // namespace

std::optional<at::Tensor> example_value(const Graph& graph, ValueId value,
                                        const std::vector<at::Tensor>& examples) {
  Graph part = part_for(graph, value);
  if (!follows_from_inputs(part)) return std::nullopt;
  part.states().clear();
  remove_dead(part);
  const TensorType type = graph.type(value);

  const NotRecorded quiet;
  CompileOptions options = compile_options_of_environment();
  options.target.autotune = false;
  Session session(compile(std::move(part), options), 1);
  at::Tensor result = at::empty(type.shape, scalar_type_of(type.dtype));
  RunRequest request;
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& example : examples) {
    inputs.push_back(narrowed_values(example, "an input"));
    request.inputs.push_back(bytes_of(inputs.back()).data());
  }
  request.outputs.push_back({bytes_of(result).data()});
  session.run(request);
  return result;
}

}  // namespace tessera
