#include "tessera/cli/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/ops/host_call.h"
#include "tessera/ops/registry.h"

namespace tessera {

std::string summary(const Graph& graph) {
  std::map<std::string_view, int64_t> kinds;
  int64_t nodes = 0, native = 0;
  for (const Node& node : graph.nodes()) {
    const Kind kind = op(node).kind;
    ++kinds[name_of(kind)];
    ++nodes;
    native += kind != Kind::host;
  }
  std::string text = fmt::format(
      "graph \"{}\": {} inputs, {} outputs, {} states, {} nodes, {} of them native\n", graph.name,
      graph.inputs().size(), graph.outputs().size(), graph.states().size(), nodes, native);
  for (const auto& [kind, count] : kinds) text += fmt::format("  {:<16}{:>6}\n", kind, count);
  const auto calls = host_calls(graph);
  if (calls.empty()) return text;
  text += "not native, run by PyTorch's own kernels:\n";
  for (const auto& [overload, count] : calls)
    text += fmt::format("  {:<40}{:>6}\n", overload, count);
  return text;
}

}  // namespace tessera
