#include "tessera/passes/merge_duplicates.h"

#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "tessera/ir/rewrite.h"
#include "tessera/ir/text.h"

namespace tessera {
namespace {

class Hash {
 public:
  template <typename T>
  void add(const T& value) {
    value_ = (value_ ^ std::hash<T>{}(value)) * 0x9e3779b97f4a7c15U;
    value_ ^= value_ >> 32;
  }
  size_t value() const { return value_; }

 private:
  size_t value_ = 0;
};

void add_attr(Hash& hash, const Attr& attr) {
  hash.add(attr.index());
  std::visit(
      [&](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, Blob>) {
          hash.add(std::string_view(reinterpret_cast<const char*>(value->data()), value->size()));
        } else if constexpr (std::is_same_v<T, std::shared_ptr<const FusedBody>>) {
          hash.add(print_body(*value));
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>> ||
                             std::is_same_v<T, std::vector<double>>) {
          for (const auto& element : value) hash.add(element);
        } else {
          hash.add(value);
        }
      },
      attr);
}

// Of a node whose operands are values of the new graph.
size_t hash_of(const Node& node) {
  Hash hash;
  hash.add(node.op);
  for (const ValueId operand : node.operands) hash.add(operand);
  for (const auto& [name, attr] : node.attrs) {
    hash.add(name);
    add_attr(hash, attr);
  }
  return hash.value();
}

bool same_value(const Node& a, const Node& b) {
  return a.op == b.op && a.operands == b.operands && a.phase == b.phase && a.stage == b.stage &&
         a.attrs == b.attrs;
}

}  // namespace

void merge_duplicates(Graph& graph) {
  std::unordered_multimap<size_t, NodeId> seen;  // nodes of the new graph
  graph = rewrite(graph, [&](Rewriter& r, const Node& node) {
    Node mapped = node;
    mapped.operands = r.map(node.operands);
    const size_t hash = hash_of(mapped);
    const auto [begin, end] = seen.equal_range(hash);
    for (auto at = begin; at != end; ++at) {
      const Node& first = r.new_graph().node(at->second);
      if (!same_value(first, mapped)) continue;
      for (size_t i = 0; i < node.results.size(); ++i) {
        r.replace(node.results[i], first.results[i]);
      }
      return;
    }
    seen.emplace(hash, NodeId{r.new_graph().node_count()});
    r.copy(node);
  });
}

}  // namespace tessera
