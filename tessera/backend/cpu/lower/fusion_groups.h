// Which nodes of a graph run as one: every node is in one group, most groups are a single node that
// stays as it is. The groups never wait for each other in a circle.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "tessera/backend/cpu/lower/fusion_members.h"
#include "tessera/ir/graph.h"

namespace tessera::cpu {

struct FusionGroup {
  bool fused = false;
  Shape shape = {};                   // of every step; what sums fold
  std::vector<NodeId> nodes = {};     // in order; none: merged into another group
  std::vector<NodeId> borrowed = {};  // nodes of other groups whose values are made here anew
  std::vector<ValueId> reads = {};    // from outside
  std::optional<std::vector<int64_t>> folded = {};  // the dimensions of its sums
};

class FusionGroups {
 public:
  static constexpr size_t most_operands = 12;
  static constexpr size_t most_steps = 48;

  explicit FusionGroups(const Graph& graph);

  const Graph& graph() const { return graph_; }
  const std::vector<FusionGroup>& groups() const { return groups_; }
  // Of a node that is in a fused group.
  const FusionMember& member(NodeId id) const { return *members_[static_cast<size_t>(id.index)]; }

  // The groups whose values a group reads, each once.
  std::vector<size_t> producers(size_t group) const;
  // Own and borrowed nodes that some result needs, in the order of the graph.
  std::vector<NodeId> needed_nodes(size_t group) const;
  // Whether a value made in the group must be stored.
  bool read_outside(size_t group, ValueId value) const;
  // A lone cast of halves to f32.
  bool only_widens(size_t group) const;
  // A constant, or a view of one, whose readers have it as a number now.
  bool unread_now(const Node& node) const;

 private:
  size_t group_of(NodeId id) const { return group_of_[static_cast<size_t>(id.index)]; }
  const auto& node_readers(ValueId value) const {
    return node_readers_[static_cast<size_t>(value.index)];
  }

  void find_members();
  void grow();
  bool widens(NodeId id) const;
  NodeId maker_of(ValueId read) const;
  void take_widening(NodeId cast, NodeId reader);
  void add_widened();
  void add_sums();
  void add_to_producer(NodeId sum);
  void add_to_fellow_reader(NodeId sum);
  void release_lone_calls();
  void recompute();
  // What a value that is made again is made of.
  enum class From : uint8_t { operands, halves };
  bool try_recompute(size_t group, NodeId id, From from);
  bool is_of_halves(NodeId id) const;
  int64_t distinct_elements(ValueId value) const;
  std::vector<NodeId> chain_of(size_t group, NodeId id, From from) const;

  bool alike(size_t a, size_t b) const;
  bool may_merge(size_t a, size_t b) const;
  bool reaches(size_t from, size_t to) const;
  void merge(size_t into, size_t from);
  bool makes(const FusionGroup& group, ValueId value) const;
  // What some of its nodes read that it does not make.
  std::vector<ValueId> outside_reads(const FusionGroup& group, std::span<const NodeId> nodes) const;
  void find_group_readers();
  void set_reads(size_t group, std::vector<ValueId> reads);

  const Graph& graph_;
  std::vector<std::optional<FusionMember>> members_;  // by node
  std::vector<size_t> group_of_;                      // by node
  // By node: the first node of the groups that it and the nodes after it are in.
  std::vector<int32_t> earliest_;
  std::vector<FusionGroup> groups_;
  std::vector<std::vector<NodeId>> node_readers_;   // by value
  std::vector<std::vector<size_t>> group_readers_;  // by value, in order, when groups are settled
  std::vector<bool> kept_;                          // by value: outputs and states
};

}  // namespace tessera::cpu
