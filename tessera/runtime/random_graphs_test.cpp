// Graph text may come from anywhere: whatever it says, it either runs or is refused by a sentence.
// TESSERA_RANDOM_OP=add tries one operator only.
#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/random_cases_for_test.h"
#include "tessera/ir/text.h"
#include "tessera/ops/forms.h"
#include "tessera/ops/run_op_for_test.h"
#include "tessera/passes/read_graph.h"
#include "tessera/runtime/environment.h"
#include "tessera/runtime/random_graph_for_test.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

void run_compiled(const std::string& text, uint64_t seed) {
  const auto executable = compile(read_graph(text), compile_options_of_environment());
  Session session(executable, 2);
  Draw draw(seed);
  for (size_t i = 0; i < executable->states().size(); ++i) {
    session.write_state(i, random_values(draw, executable->states()[i].type));
  }
  std::vector<std::vector<std::byte>> memory;
  RunRequest request;
  for (const StepInput& input : executable->data_inputs()) {
    memory.push_back(random_values(draw, input.type));
    request.inputs.push_back(memory.back().data());
  }
  for (const StepOutput& output : executable->outputs()) {
    memory.emplace_back(static_cast<size_t>(bytes(output.type)));
    request.outputs.push_back({memory.back().data(), OutputMode::final_value, 1});
  }
  session.run(request);
}

bool sees_halves(const Graph& graph, const Node& node) {
  const auto half = [&](ValueId id) { return id.valid() && graph.type(id).dtype == DType::f16; };
  return std::any_of(node.operands.begin(), node.operands.end(), half) ||
         std::any_of(node.results.begin(), node.results.end(), half);
}

// The one operator, by its reference kernel, where that is what a program would run.
void run_plainly(const Graph& graph, const std::string& name, uint64_t seed) {
  for (const Node& node : graph.nodes()) {
    if (node.op != name) continue;
    if (sees_halves(graph, node) && !takes_halves(op(node))) return;
    Draw draw(seed);
    std::vector<HostTensor> operands;
    for (const ValueId id : node.operands) {
      if (!id.valid()) {
        operands.push_back(left_out());
        continue;
      }
      HostTensor tensor(graph.type(id));
      tensor.memory = random_values(draw, tensor.type);
      operands.push_back(std::move(tensor));
    }
    OpRun(name, operands, node.attrs);
    return;
  }
}

// What this machine may hold, but not quickly.
bool is_large(const Graph& graph) {
  double total = 0;
  for (int32_t i = 0; i < graph.value_count(); ++i) {
    total += static_cast<double>(bytes(graph.type({i})));
  }
  return total > 0x1p26;
}

// True where it is refused by an Error; what else is thrown goes on.
template <typename Run>
bool is_refused(const Run& run) {
  try {
    run();
  } catch (const Error&) {
    return true;
  }
  return false;
}

TEST(RandomGraphs, RunOrAreRefusedByASentence) {
  const char* name = std::getenv("TESSERA_RANDOM_OP");
  const OpDef* row = name ? find_op(name) : nullptr;
  RandomCases().run(1500, [row](uint64_t seed, const RandomCases::Describe& describe) {
    std::unique_ptr<RandomGraph> random;
    const bool by_rule = is_refused([&] { random = std::make_unique<RandomGraph>(seed, row); });
    if (by_rule || is_large(random->graph)) return CaseEnd::refused;
    const std::string text = print(random->graph);
    describe(random->op + "\n" + text);
    // What the values are may be refused by one way and not by the other: their order differs.
    const bool plainly = is_refused([&] { run_plainly(random->graph, random->op, seed); });
    const bool compiled = is_refused([&] { run_compiled(text, seed); });
    return plainly || compiled ? CaseEnd::refused : CaseEnd::ran;
  });
}

}  // namespace
}  // namespace tessera
