#include "tessera/backend/cpu/lower/fuse_losses.h"

#include <algorithm>
#include <vector>

#include "tessera/base/geometry.h"
#include "tessera/ir/rewrite.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

bool is_loss(const Node& node) {
  return node.op == "nll_loss_forward" || node.op == "nll_loss2d_forward";
}

bool is_loss_gradient(const Node& node) {
  return node.op == "nll_loss_backward" || node.op == "nll_loss2d_backward";
}

class LossFuser {
 public:
  explicit LossFuser(const Graph& graph)
      : graph_(graph),
        uses_(count_uses(graph)),
        taken_(static_cast<size_t>(graph.node_count())),
        gone_(static_cast<size_t>(graph.node_count())),
        gradients_(static_cast<size_t>(graph.value_count())),
        log_sums_(static_cast<size_t>(graph.value_count())) {
    // Gradients first: whether all of the log probabilities' readers are known shows only then.
    for (const Node& node : graph.nodes()) take(node, loss_gradient_of(node));
    for (const Node& node : graph.nodes()) take(node, softmax_of(node));
  }

  Graph fuse() {
    return rewrite(graph_, [&](Rewriter& r, const Node& node) {
      if (gone_[number(node)]) return;
      const Node* other = taken_[number(node)];
      if (!other) return r.copy(node);
      if (is_loss(node)) return write_loss(r, node, *other);
      write_gradient(r, node, *other);
    });
  }

 private:
  // What reads log probabilities to make the gradient of the scores, two nodes each.
  struct Gradients {
    int32_t count = 0;
    size_t first = 0;  // node
  };

  size_t number(const Node& node) const {
    return static_cast<size_t>(&node - graph_.nodes().data());
  }
  static size_t number(ValueId value) { return static_cast<size_t>(value.index); }

  // `node` will do the work of `other` too.
  void take(const Node& node, const Node* other) {
    if (!other) return;
    taken_[number(node)] = other;
    gone_[number(*other)] = true;
    if (!is_loss_gradient(*other)) return;
    Gradients& gradients = gradients_[number(other->operands[1])];
    if (gradients.count++ == 0) gradients.first = number(node);
  }

  bool is_f32(ValueId value) const { return graph_.type(value).dtype == DType::f32; }
  static bool same_place(const Node& a, const Node& b) {
    return a.phase == b.phase && a.stage == b.stage;
  }

  // Whether a softmax, or its gradient, is over the dimension that losses take for the classes.
  bool over_classes(const Node& softmax) const {
    const auto rank = static_cast<int64_t>(graph_.type(softmax.results[0]).shape.size());
    return rank > 0 && wrap_dim(softmax.attrs.integer("dim"), rank) == (rank == 1 ? 0 : 1);
  }

  // The gradient of a loss that only `node`, the gradient of its log-softmax, reads.
  const Node* loss_gradient_of(const Node& node) const {
    if (node.op != "_log_softmax_backward_data" || !over_classes(node)) return nullptr;
    const ValueId grad = node.operands[0], logs = node.operands[1];
    const Node* loss = graph_.producer(grad);
    if (!loss || !is_loss_gradient(*loss) || !same_place(*loss, node)) return nullptr;
    if (uses_[number(grad)] != 1 || loss->operands[1] != logs) return nullptr;
    return is_f32(logs) && is_f32(node.results[0]) ? loss : nullptr;
  }

  // The log-softmax that only `node`, a loss, and its gradients read.
  const Node* softmax_of(const Node& node) const {
    if (!is_loss(node)) return nullptr;
    const ValueId logs = node.operands[0];
    const Node* softmax = graph_.producer(logs);
    if (!softmax || softmax->op != "_log_softmax" || !over_classes(*softmax)) return nullptr;
    if (!same_place(*softmax, node)) return nullptr;
    const Gradients& gradients = gradients_[number(logs)];
    if (uses_[number(logs)] != 1 + 2 * gradients.count) return nullptr;
    if (gradients.count > 0 && gradients.first < number(node)) return nullptr;
    const ValueId scores = softmax->operands[0];
    return is_f32(scores) && is_f32(logs) && is_dense(scores) ? softmax : nullptr;
  }

  // Of another view the log-softmax makes a dense tensor, which the gradient is faster with.
  bool is_dense(ValueId value) const {
    for (const Node* node = graph_.producer(value); node && op(*node).kind == Kind::view;
         node = graph_.producer(node->operands[0])) {
      const Shape& shape = node->attrs.integers("shape");
      if (!same_elements({shape, node->attrs.integers("strides"), 0}, dense(shape))) return false;
    }
    return true;
  }

  void write_loss(Rewriter& r, const Node& loss, const Node& softmax) {
    Builder builder(r.new_graph());
    builder.set_place_of(loss);
    std::vector<ValueId> operands = loss.operands;
    operands[0] = softmax.operands[0];
    const auto results = builder.add_all("cross_entropy", r.map(operands), loss.attrs);
    r.replace(loss.results[0], results[0]);
    r.replace(loss.results[1], results[1]);
    log_sums_[number(loss.operands[0])] = results[2];
  }

  // From the scores and the logarithm of their sums, or from log probabilities that are kept.
  void write_gradient(Rewriter& r, const Node& node, const Node& loss) {
    Builder builder(r.new_graph());
    builder.set_place_of(node);
    std::vector<ValueId> operands = loss.operands;
    const ValueId logs = operands[1], log_sum = log_sums_[number(logs)];
    if (log_sum.valid()) operands[1] = graph_.producer(logs)->operands[0];
    operands = r.map(operands);
    operands.push_back(log_sum);
    r.replace(node.results[0], builder.add("cross_entropy_backward", operands, loss.attrs));
  }

  const Graph& graph_;
  std::vector<int32_t> uses_;
  std::vector<const Node*> taken_;    // by node: the one whose work it does too
  std::vector<bool> gone_;            // by node
  std::vector<Gradients> gradients_;  // by value: log probabilities
  std::vector<ValueId> log_sums_;     // by value: log probabilities that are gone
};

}  // namespace

Graph fuse_losses(const Graph& graph) { return LossFuser(graph).fuse(); }

}  // namespace tessera::cpu
