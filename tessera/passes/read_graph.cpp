#include "tessera/passes/read_graph.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/host_call.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

void check_operands(const OpDef& row, const Node& node) {
  const auto specs = operand_specs(row);
  const bool list = !specs.empty() && specs.back().list;
  check(list || node.operands.size() <= specs.size(), "{}({}) was given {} operands", row.name,
        row.operands, node.operands.size());
  for (size_t i = 0; i < std::max(specs.size(), node.operands.size()); ++i) {
    const OperandSpec& spec = specs[std::min(i, specs.size() - 1)];
    const bool left_out = i >= node.operands.size() || !node.operands[i].valid();
    const bool may_be = spec.optional || (spec.list && i >= node.operands.size());
    check(!left_out || may_be, "{} needs its operand '{}'", row.name, spec.name);
  }
}

void check_types(const Graph& graph, const OpDef& row, const Node& node) {
  std::vector<std::optional<TensorType>> operands;
  for (const ValueId operand : node.operands) {
    operands.push_back(operand.valid() ? std::optional(graph.type(operand)) : std::nullopt);
  }
  const auto types = infer(row, operands, node.attrs);
  check(types.size() == node.results.size(), "{} has {} results here, not {}", row.name,
        types.size(), node.results.size());
  for (size_t i = 0; i < types.size(); ++i) {
    const TensorType want{narrowed(types[i].dtype), types[i].shape};
    const TensorType& got = graph.type(node.results[i]);
    if (want == got) continue;
    fail(ErrorKind::user, "result {} of {} is {}, not {}", i, row.name, to_string(want),
         to_string(got));
  }
}

void check_node(const Graph& graph, Node& node) {
  const OpDef* row = find_op(node.op);
  check(row, "there is no operator '{}'", node.op);
  check_operands(*row, node);
  node.attrs = completed(*row, node.attrs);
  check_types(graph, *row, node);
}

}  // namespace

Graph read_graph(std::string_view text, FromFile limit, std::span<const Blob> blobs) {
  Graph graph = parse(text, blobs);
  for (int32_t i = 0; i < graph.node_count(); ++i) {
    Node& node = graph.node({i});
    try {
      check_node(graph, node);
    } catch (const Error&) {
      // Once more with its text: to print every node takes longer than to check it.
      const ErrorContext where("node {}", print_node(graph, node));
      check_node(graph, node);
    }
  }
  if (limit == FromFile::safe_host_calls) check_host_calls_of_file(graph);
  return graph;
}

}  // namespace tessera
