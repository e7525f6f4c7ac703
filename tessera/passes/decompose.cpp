#include "tessera/passes/decompose.h"

#include "tessera/base/error.h"
#include "tessera/ir/rewrite.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/forms.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

constexpr int max_depth = 32;  // of composites made of composites; more is a cycle in the table

// True where the node was replaced.
bool take_apart(Rewriter& r, const Node& node, const std::vector<int32_t>& uses) {
  const OpDef& row = op(node);
  if (!row.decompose) return false;
  const ErrorContext where("taking apart {}", print_node(r.old_graph(), node));
  Node mapped = node;
  mapped.operands = r.map(node.operands);
  mapped.results.clear();
  Builder builder(r.new_graph());
  builder.set_place_of(node);
  const auto parts = row.decompose(builder, mapped);
  if (parts.empty()) return false;
  TESSERA_INVARIANT(parts.size() == node.results.size(), "{} became {} values instead of {}",
                    node.op, parts.size(), node.results.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const TensorType& before = r.old_graph().type(node.results[i]);
    if (!parts[i].valid()) {
      // Nobody should use it; who does, as a text may, reads zeros.
      if (uses[static_cast<size_t>(node.results[i].index)] > 0) {
        r.replace(node.results[i], builder.add("fill", {}, fill_attributes(before, 0)));
      }
      continue;
    }
    const TensorType& after = builder.type(parts[i]);
    TESSERA_INVARIANT(before == after, "result {} of {} was {} and became {}", i, node.op,
                      to_string(before), to_string(after));
    r.replace(node.results[i], parts[i]);
  }
  return true;
}

}  // namespace

void decompose(Graph& graph) {
  for (int depth = 0; depth < max_depth; ++depth) {
    bool changed = false;
    const std::vector<int32_t> uses = count_uses(graph);
    graph = rewrite(graph, [&](Rewriter& r, const Node& node) {
      if (take_apart(r, node, uses)) {
        changed = true;
      } else {
        TESSERA_INVARIANT(op(node).kind != Kind::composite, "the composite {} was not taken apart",
                          node.op);
        r.copy(node);
      }
    });
    if (!changed) return;
  }
  TESSERA_UNREACHABLE("composites are still there after {} rounds", max_depth);
}

}  // namespace tessera
