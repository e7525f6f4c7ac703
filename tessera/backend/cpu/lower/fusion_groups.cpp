#include "tessera/backend/cpu/lower/fusion_groups.h"

#include <algorithm>

#include "tessera/backend/cpu/lower/widen_at_readers.h"
#include "tessera/ops/forms.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

// What may be made anew rather than stored: a few cheap steps.
constexpr size_t most_recomputed_steps = 4;
constexpr double most_recomputed_flops = 8;
constexpr size_t most_new_reads = 2;
// An operand with so many times fewer elements than the group costs nothing to read again.
constexpr int64_t small_factor = 8;

template <typename T>
bool contains(const std::vector<T>& list, const T& wanted) {
  return std::find(list.begin(), list.end(), wanted) != list.end();
}

template <typename T>
void add_once(std::vector<T>& list, const T& value) {
  if (!contains(list, value)) list.push_back(value);
}

}  // namespace

FusionGroups::FusionGroups(const Graph& graph)
    : graph_(graph),
      group_of_(static_cast<size_t>(graph.node_count())),
      groups_(static_cast<size_t>(graph.node_count())),
      node_readers_(static_cast<size_t>(graph.value_count())),
      kept_(static_cast<size_t>(graph.value_count())) {
  const auto keep = [&](ValueId value) { kept_[static_cast<size_t>(value.index)] = true; };
  for (const Output& output : graph.outputs()) keep(output.value);
  for (const State& state : graph.states()) {
    keep(state.after_micro_batch);
    keep(state.after_update);
  }
  find_members();
  grow();
  add_sums();
  add_widened();
  release_lone_calls();
  recompute();
}

void FusionGroups::find_members() {
  for (int32_t i = 0; i < graph_.node_count(); ++i) {
    const auto at = static_cast<size_t>(i);
    const Node& node = graph_.node({i});
    members_.push_back(fusion_member(graph_, node));
    group_of_[at] = at;
    earliest_.push_back(i);
    FusionGroup& group = groups_[at];
    group.nodes = {{i}};
    for (const ValueId read : members_[at] ? members_[at]->reads : node.operands) {
      if (read.valid()) add_once(group.reads, read);
    }
    for (const ValueId read : group.reads) {
      node_readers_[static_cast<size_t>(read.index)].push_back({i});
    }
    if (!members_[at]) continue;
    group.fused = true;
    const auto& sum = members_[at]->sum;
    group.shape = graph_.type(sum ? members_[at]->reads[0] : node.results[0]).shape;
    if (sum) group.folded = sum->dims;
  }
}

// In the order of nodes: when a node looks at the groups of its operands, nothing has looked at its
// own result yet. The latest group first: the chain it continues.
void FusionGroups::grow() {
  for (int32_t i = 0; i < graph_.node_count(); ++i) {
    const size_t own = group_of({i});
    if (!groups_[own].fused || groups_[own].folded || widens({i})) continue;
    std::vector<NodeId> makers;
    for (const ValueId read : member({i}).reads) {
      if (!read.valid()) continue;
      take_widening(graph_.value(read).producer, {i});
      const NodeId maker = maker_of(read);
      if (maker.valid()) add_once(makers, maker);
    }
    std::sort(makers.begin(), makers.end(), [](NodeId a, NodeId b) { return a.index > b.index; });
    for (const NodeId maker : makers) {
      const size_t there = group_of(maker), here = group_of({i});
      if (there != here && !groups_[there].folded && may_merge(there, here)) merge(there, here);
    }
  }
}

bool FusionGroups::widens(NodeId id) const {
  const auto& found = members_[static_cast<size_t>(id.index)];
  return found && !found->sum && is_widening(graph_, graph_.node(id));
}

bool FusionGroups::only_widens(size_t group) const {
  const auto& nodes = groups_[group].nodes;
  return groups_[group].fused && nodes.size() == 1 && widens(nodes[0]);
}

// What makes a value that a node reads; of a cast to f32, the halves.
NodeId FusionGroups::maker_of(ValueId read) const {
  const NodeId maker = graph_.value(read).producer;
  if (!maker.valid() || !widens(maker)) return maker;
  return graph_.value(member(maker).reads[0]).producer;
}

// A cast to f32 belongs to the node that reads it: what makes the halves may run long before.
void FusionGroups::take_widening(NodeId cast, NodeId reader) {
  if (!cast.valid() || !widens(cast)) return;
  const size_t there = group_of(cast), here = group_of(reader);
  if (groups_[there].nodes.size() == 1 && may_merge(there, here)) merge(there, here);
}

// Where nothing takes a cast in, because its reader is no element-wise node, what makes the halves
// makes both, if that reader is their first one: others come later.
void FusionGroups::add_widened() {
  for (int32_t i = 0; i < graph_.node_count(); ++i) {
    if (!widens({i}) || groups_[group_of({i})].nodes.size() > 1) continue;
    const ValueId halves = member({i}).reads[0];
    const NodeId maker = graph_.value(halves).producer;
    if (!maker.valid() || !members_[static_cast<size_t>(maker.index)]) continue;
    if (node_readers(halves)[0] != NodeId{i}) continue;
    if (graph_.node(maker).origin.backward != graph_.node({i}).origin.backward) continue;
    const size_t there = group_of(maker), here = group_of({i});
    if (may_merge(there, here)) merge(there, here);
  }
}

// Sums of values that groups make come first: a group that has one may take sums of what it reads.
void FusionGroups::add_sums() {
  std::vector<NodeId> sums;
  for (int32_t i = 0; i < graph_.node_count(); ++i) {
    if (members_[static_cast<size_t>(i)] && member({i}).sum) sums.push_back({i});
  }
  for (const NodeId sum : sums) add_to_producer(sum);
  for (const NodeId sum : sums) add_to_fellow_reader(sum);
}

void FusionGroups::add_to_producer(NodeId sum) {
  take_widening(graph_.value(member(sum).reads[0]).producer, sum);
  const NodeId maker = maker_of(member(sum).reads[0]);
  if (!maker.valid()) return;
  // A sum is only known when its group has ended, and a sum of it may well have the same shape.
  const auto& made_by = members_[static_cast<size_t>(maker.index)];
  if (made_by && made_by->sum) return;
  const size_t there = group_of(maker), here = group_of(sum);
  const auto& folded = groups_[there].folded;
  if (folded && folded != groups_[here].folded) return;
  if (there != here && may_merge(there, here)) merge(there, here);
}

void FusionGroups::add_to_fellow_reader(NodeId sum) {
  const size_t here = group_of(sum);
  const NodeId cast = graph_.value(member(sum).reads[0]).producer;
  const bool widened = cast.valid() && widens(cast) && group_of(cast) == here;
  if (groups_[here].nodes.size() > (widened ? 2 : 1)) return;
  const ValueId read = member(widened ? cast : sum).reads[0];
  for (const NodeId reader : node_readers(read)) {
    const size_t there = group_of(reader);
    if (there == here || groups_[there].folded != groups_[here].folded) continue;
    // A sum is only known when its group has ended.
    const auto makers = producers(there);
    if (std::find(makers.begin(), makers.end(), here) != makers.end()) continue;
    if (may_merge(there, here)) return merge(there, here);
  }
}

// A node whose kernel would be called, and nothing else: that is what it is already.
void FusionGroups::release_lone_calls() {
  for (FusionGroup& group : groups_) {
    if (!group.fused || group.nodes.size() > 1) continue;
    const NodeId id = group.nodes[0];
    auto& own = members_[static_cast<size_t>(id.index)];
    if (own->has_code) continue;
    own.reset();
    group.fused = false;
    for (const ValueId operand : graph_.node(id).operands) {
      if (!operand.valid()) continue;
      add_once(group.reads, operand);
      add_once(node_readers_[static_cast<size_t>(operand.index)], id);
    }
  }
}

bool FusionGroups::alike(size_t a, size_t b) const {
  const FusionGroup &first = groups_[a], &second = groups_[b];
  if (!first.fused || !second.fused || first.shape != second.shape) return false;
  const Node &one = graph_.node(first.nodes[0]), &other = graph_.node(second.nodes[0]);
  return one.phase == other.phase && one.stage == other.stage;
}

bool FusionGroups::may_merge(size_t a, size_t b) const {
  if (!alike(a, b)) return false;
  FusionGroup both;
  both.nodes = groups_[a].nodes;
  both.nodes.insert(both.nodes.end(), groups_[b].nodes.begin(), groups_[b].nodes.end());
  if (both.nodes.size() > most_steps || outside_reads(both, both.nodes).size() > most_operands)
    return false;
  return !reaches(a, b) && !reaches(b, a);
}

// Whether there is a way from one group to another through a third.
bool FusionGroups::reaches(size_t from, size_t to) const {
  // The last step of the way is something that `to` reads from a third.
  const auto& reads = groups_[to].reads;
  const bool reads_of_others = std::any_of(reads.begin(), reads.end(), [&](ValueId read) {
    const NodeId maker = graph_.value(read).producer;
    return maker.valid() && group_of(maker) != from && group_of(maker) != to;
  });
  if (!reads_of_others) return false;
  std::vector<bool> seen(groups_.size());
  std::vector<size_t> left = {from};
  const int32_t last = groups_[to].nodes.back().index;
  while (!left.empty()) {
    const size_t group = left.back();
    left.pop_back();
    for (const NodeId id : groups_[group].nodes) {
      for (const ValueId result : graph_.node(id).results) {
        for (const NodeId reader : node_readers(result)) {
          const size_t next = group_of(reader);
          if (next == to && group != from) return true;
          if (next == to || next == from || seen[next]) continue;
          // Whatever can be reached from there stands behind `to`.
          if (earliest_[static_cast<size_t>(groups_[next].nodes.front().index)] > last) continue;
          seen[next] = true;
          left.push_back(next);
        }
      }
    }
  }
  return false;
}

void FusionGroups::merge(size_t into, size_t from) {
  FusionGroup& group = groups_[into];
  for (const NodeId id : groups_[from].nodes) {
    group.nodes.push_back(id);
    group_of_[static_cast<size_t>(id.index)] = into;
  }
  std::sort(group.nodes.begin(), group.nodes.end(),
            [](NodeId a, NodeId b) { return a.index < b.index; });
  const int32_t first = group.nodes.front().index;
  for (int32_t node = first + 1; node <= group.nodes.back().index; ++node) {
    int32_t& earliest = earliest_[static_cast<size_t>(node)];
    earliest = std::min(earliest, first);
  }
  if (groups_[from].folded) group.folded = groups_[from].folded;
  group.reads = outside_reads(group, group.nodes);
  groups_[from] = {};
}

bool FusionGroups::makes(const FusionGroup& group, ValueId value) const {
  const NodeId maker = graph_.value(value).producer;
  return maker.valid() && (contains(group.nodes, maker) || contains(group.borrowed, maker));
}

std::vector<ValueId> FusionGroups::outside_reads(const FusionGroup& group,
                                                 std::span<const NodeId> nodes) const {
  std::vector<ValueId> reads;
  for (const NodeId id : nodes) {
    for (const ValueId read : member(id).reads) {
      if (read.valid() && !makes(group, read)) add_once(reads, read);
    }
  }
  return reads;
}

std::vector<size_t> FusionGroups::producers(size_t group) const {
  std::vector<size_t> found;
  for (const ValueId read : groups_[group].reads) {
    const NodeId maker = graph_.value(read).producer;
    if (maker.valid()) add_once(found, group_of(maker));
  }
  return found;
}

void FusionGroups::find_group_readers() {
  group_readers_.assign(node_readers_.size(), {});
  for (size_t i = 0; i < groups_.size(); ++i) {
    const FusionGroup& group = groups_[i];
    if (!group.fused && !group.nodes.empty() && unread_now(graph_.node(group.nodes[0]))) continue;
    for (const ValueId read : group.reads) {
      group_readers_[static_cast<size_t>(read.index)].push_back(i);
    }
  }
}

// Of a fused group.
void FusionGroups::set_reads(size_t group, std::vector<ValueId> reads) {
  for (const ValueId read : groups_[group].reads) {
    std::erase(group_readers_[static_cast<size_t>(read.index)], group);
  }
  for (const ValueId read : reads) {
    auto& readers = group_readers_[static_cast<size_t>(read.index)];
    readers.insert(std::lower_bound(readers.begin(), readers.end(), group), group);
  }
  groups_[group].reads = std::move(reads);
}

bool FusionGroups::read_outside(size_t group, ValueId value) const {
  const NodeId maker = graph_.value(value).producer;
  if (group_of(maker) != group) return false;  // borrowed
  const auto at = static_cast<size_t>(value.index);
  return kept_[at] || !group_readers_[at].empty();
}

std::vector<NodeId> FusionGroups::needed_nodes(size_t group) const {
  std::vector<NodeId> nodes = groups_[group].nodes;
  for (const NodeId id : groups_[group].borrowed) add_once(nodes, id);
  std::sort(nodes.begin(), nodes.end(), [](NodeId a, NodeId b) { return a.index < b.index; });
  std::vector<NodeId> needed;
  std::vector<ValueId> wanted;
  for (auto id = nodes.rbegin(); id != nodes.rend(); ++id) {
    const ValueId result = graph_.node(*id).results[0];
    if (!member(*id).sum && !read_outside(group, result) && !contains(wanted, result)) continue;
    needed.push_back(*id);
    for (const ValueId read : member(*id).reads) {
      if (read.valid()) add_once(wanted, read);
    }
  }
  std::reverse(needed.begin(), needed.end());
  return needed;
}

bool FusionGroups::unread_now(const Node& node) const {
  const Kind kind = op(node).kind;
  if (kind != Kind::source && kind != Kind::view) return false;
  return std::all_of(node.results.begin(), node.results.end(), [&](ValueId result) {
    if (kept_[static_cast<size_t>(result.index)]) return false;
    const auto& readers = node_readers(result);
    return std::all_of(readers.begin(), readers.end(), [&](NodeId reader) {
      return !groups_[group_of(reader)].fused && unread_now(graph_.node(reader));
    });
  });
}

void FusionGroups::recompute() {
  find_group_readers();
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (!groups_[i].fused) continue;
    for (const NodeId id : std::vector<NodeId>(groups_[i].nodes)) {
      if (member(id).sum) continue;
      if (!try_recompute(i, id, From::operands) && !try_recompute(i, id, From::halves)) continue;
      // The group itself may now read less.
      set_reads(i, outside_reads(groups_[i], needed_nodes(i)));
    }
  }
}

// The nodes of the group that a value is made of, or those after the last halves.
std::vector<NodeId> FusionGroups::chain_of(size_t group, NodeId id, From from) const {
  std::vector<NodeId> chain = {id};
  for (size_t i = 0; i < chain.size(); ++i) {
    for (const ValueId read : member(chain[i]).reads) {
      const bool ends =
          from == From::halves && read.valid() && graph_.type(read).dtype == DType::f16;
      if (read.valid() && !ends && makes(groups_[group], read)) {
        add_once(chain, graph_.value(read).producer);
      }
    }
  }
  return chain;
}

// Of halves that are repeated by a view, those that there are.
int64_t FusionGroups::distinct_elements(ValueId value) const {
  const Node* producer = graph_.producer(value);
  const int64_t all = numel(graph_.type(value).shape);
  const bool halves = graph_.type(value).dtype == DType::f16;
  if (!halves || !producer || op(*producer).kind != Kind::view) return all;
  return std::min(all, extent(geometry_of_view(*producer)));
}

// A conversion from or to halves: what is made in f32 may be made again with it and without it.
// Rounding by chance is work.
bool FusionGroups::is_of_halves(NodeId id) const {
  const Node& node = graph_.node(id);
  return is_cast(node) && (graph_.type(node.results[0]).dtype == DType::f16 ||
                           graph_.type(node.operands[0]).dtype == DType::f16);
}

// Lets all readers of a value make it themselves, where that is cheap and saves storing it; or
// storing more than the halves that it is made of.
bool FusionGroups::try_recompute(size_t group, NodeId id, From from) {
  const ValueId value = graph_.node(id).results[0];
  if (kept_[static_cast<size_t>(value.index)]) return false;
  if (from == From::halves && graph_.type(value).dtype != DType::f32) return false;
  const auto readers = group_readers_[static_cast<size_t>(value.index)];
  const std::vector<NodeId> chain = chain_of(group, id, from);
  if (readers.empty()) return false;
  if (from == From::halves && chain == chain_of(group, id, From::operands)) return false;
  double flops = 0;
  size_t steps = 0;
  for (const NodeId step : chain) {
    if (!member(step).has_code) return false;
    if (is_of_halves(step)) continue;
    flops += flops_per_element(member(step).step);
    ++steps;
  }
  if (steps > most_recomputed_steps || flops > most_recomputed_flops) return false;

  std::vector<FusionGroup> grown;
  for (const size_t reader : readers) {
    if (!alike(group, reader)) return false;
    FusionGroup& after = grown.emplace_back(groups_[reader]);
    for (const NodeId step : chain) add_once(after.borrowed, step);
    std::vector<NodeId> nodes = after.nodes;
    nodes.insert(nodes.end(), after.borrowed.begin(), after.borrowed.end());
    after.reads = outside_reads(after, nodes);
    const auto& before = groups_[reader].reads;
    size_t new_reads = 0;
    for (const ValueId read : after.reads) {
      const bool small = distinct_elements(read) * small_factor <= numel(after.shape);
      if (!small && !contains(before, read)) ++new_reads;
    }
    // What backward reads anew would have to be kept from forward until then.
    const bool crosses =
        graph_.node(id).origin.backward != graph_.node(after.nodes[0]).origin.backward;
    const size_t most = from == From::halves ? 1 : crosses ? 0 : most_new_reads;
    if (new_reads > most) return false;
    if (after.reads.size() > most_operands) return false;
    if (after.nodes.size() + after.borrowed.size() > most_steps) return false;
  }
  for (size_t i = 0; i < readers.size(); ++i) {
    groups_[readers[i]].borrowed = std::move(grown[i].borrowed);
    set_reads(readers[i], std::move(grown[i].reads));
  }
  return true;
}

}  // namespace tessera::cpu
