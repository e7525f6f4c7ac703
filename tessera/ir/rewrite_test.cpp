#include "tessera/ir/rewrite.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"

namespace tessera {
namespace {

constexpr std::string_view text = R"(graph "g" {
  input data "x" %0: f32[2]
  state buffer "b" %1: f32[2] micro_batch %3 update %4
  %2 = neg(%0) : f32[2]
  %3 = add(%2, %1, _) : f32[2] @ "a.py":3
  update %4 = neg(%3) : f32[2] stage 1
  output "0" %2
}
)";

TEST(Rewrite, CopyingEveryNodeKeepsTheGraph) {
  const Graph graph = parse(text);
  const Graph same = rewrite(graph, [](Rewriter& r, const Node& node) { r.copy(node); });
  EXPECT_EQ(print(same), text);
}

TEST(Rewrite, ReplacedValuesReachNodesOutputsAndStates) {
  const Graph graph = parse(text);
  const Graph changed = rewrite(graph, [](Rewriter& r, const Node& node) {
    if (node.op == "neg") {
      r.replace(node.results[0], r.map(node.operands[0]));
    } else {
      r.copy(node);
    }
  });
  EXPECT_EQ(print(changed), R"(graph "g" {
  input data "x" %0: f32[2]
  state buffer "b" %1: f32[2] micro_batch %2
  %2 = add(%0, %1, _) : f32[2] @ "a.py":3
  output "0" %0
}
)");
}

TEST(Rewrite, AValueThatIsUsedMustBeRebuilt) {
  const Graph graph = parse(text);
  EXPECT_THROW(rewrite(graph, [](Rewriter&, const Node&) {}), InternalError);
}

TEST(Graph, CountsUsesByNodesOutputsAndStates) {
  const Graph graph = parse(text);
  EXPECT_EQ(count_uses(graph), (std::vector<int32_t>{1, 1, 2, 2, 1}));
}

}  // namespace
}  // namespace tessera
