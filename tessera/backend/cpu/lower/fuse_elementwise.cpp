#include "tessera/backend/cpu/lower/fuse_elementwise.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "tessera/backend/cpu/lower/fusion_groups.h"
#include "tessera/base/error.h"
#include "tessera/ir/rewrite.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

// Groups in an order in which they can run, as close to the nodes' own as it goes. A cast that only
// widens halves waits for the first group that reads it: until then there are the halves.
std::vector<size_t> running_order(const FusionGroups& groups) {
  const auto& all = groups.groups();
  std::vector<int> waiting(all.size(), 0);
  std::vector<std::vector<size_t>> readers(all.size());
  using Next = std::pair<int32_t, size_t>;  // the last node, the group
  std::priority_queue<Next, std::vector<Next>, std::greater<>> ready;
  std::vector<bool> waits(all.size(), false);  // for its first reader
  const auto views_what_waits = [&](size_t group) {
    const auto producers = groups.producers(group);
    return op(groups.graph().node(all[group].nodes[0])).kind == Kind::view &&
           std::any_of(producers.begin(), producers.end(), [&](size_t one) { return waits[one]; });
  };
  const std::function<void(size_t)> push = [&](size_t group) {
    waits[group] =
        (groups.only_widens(group) || views_what_waits(group)) && !readers[group].empty();
    if (!waits[group]) {
      ready.emplace(all[group].nodes.back().index, group);
      return;
    }
    for (const size_t reader : readers[group]) {
      if (--waiting[reader] == 0) push(reader);
    }
  };
  std::vector<size_t> sources;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].nodes.empty()) continue;
    for (const size_t producer : groups.producers(i)) {
      readers[producer].push_back(i);
      ++waiting[i];
    }
    if (waiting[i] == 0) sources.push_back(i);
  }
  for (const size_t group : sources) push(group);
  std::vector<size_t> order;
  const std::function<void(size_t)> add = [&](size_t group) {
    for (const size_t producer : groups.producers(group)) {
      if (!waits[producer]) continue;
      waits[producer] = false;
      add(producer);
    }
    order.push_back(group);
  };
  while (!ready.empty()) {
    const size_t group = ready.top().second;
    ready.pop();
    add(group);
    for (const size_t reader : readers[group]) {
      if (--waiting[reader] == 0) push(reader);
    }
  }
  const auto used = std::count_if(all.begin(), all.end(),
                                  [](const FusionGroup& group) { return !group.nodes.empty(); });
  TESSERA_INVARIANT(order.size() == static_cast<size_t>(used), "fused nodes wait for each other");
  return order;
}

// A group as a body, with the values that are its operands and results in the old graph.
struct FusedNode {
  FusedBody body;
  std::vector<ValueId> operands, results;
  bool sums = false;
};

class BodyWriter {
 public:
  BodyWriter(const FusionGroups& groups, size_t group) : groups_(groups), group_(group) {}

  FusedNode write() {
    for (const NodeId id : groups_.needed_nodes(group_)) add(id);
    return std::move(fused_);
  }

 private:
  void add(NodeId id) {
    const FusionMember& member = groups_.member(id);
    const ValueId result = groups_.graph().node(id).results[0];
    if (member.sum) {
      BodyResult sum = *member.sum;
      sum.value = value(member.reads[0]);
      fused_.body.results.push_back(std::move(sum));
      fused_.results.push_back(result);
      fused_.sums = true;
      return;
    }
    BodyStep step = member.step;
    for (size_t i = 0; i < step.arguments.size(); ++i) {
      if (member.reads[i].valid()) step.arguments[i] = value(member.reads[i]);
    }
    made_.push_back(result);
    fused_.body.steps.push_back(std::move(step));
    if (!groups_.read_outside(group_, result)) return;
    fused_.body.results.push_back({{BodyValue::From::step, made_.size() - 1}});
    fused_.results.push_back(result);
  }

  BodyValue value(ValueId id) {
    const auto made = std::find(made_.begin(), made_.end(), id);
    if (made != made_.end()) {
      return {BodyValue::From::step, static_cast<size_t>(made - made_.begin())};
    }
    auto& operands = fused_.operands;
    const auto known = std::find(operands.begin(), operands.end(), id);
    const auto index = static_cast<size_t>(known - operands.begin());
    if (known == operands.end()) operands.push_back(id);
    return {BodyValue::From::operand, index};
  }

  const FusionGroups& groups_;
  const size_t group_;
  FusedNode fused_;
  std::vector<ValueId> made_;  // by step
};

}  // namespace

Graph fuse_elementwise(const Graph& graph) {
  const FusionGroups groups(graph);
  Rewriter rewriter(graph);
  for (const size_t index : running_order(groups)) {
    const FusionGroup& group = groups.groups()[index];
    if (!group.fused) {
      const Node& node = graph.node(group.nodes[0]);
      if (!groups.unread_now(node)) rewriter.copy(node);
      continue;
    }
    const FusedNode fused = BodyWriter(groups, index).write();
    if (fused.results.empty()) continue;  // every reader makes its values anew
    Builder builder(rewriter.new_graph());
    builder.set_place_of(graph.node(group.nodes.back()));
    const auto results =
        builder.add_all(fused.sums ? "map_reduce" : "map", rewriter.map(fused.operands),
                        {{"body", body_attr(fused.body)}});
    for (size_t i = 0; i < results.size(); ++i) rewriter.replace(fused.results[i], results[i]);
  }
  return rewriter.finish();
}

}  // namespace tessera::cpu
