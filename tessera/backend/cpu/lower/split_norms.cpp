#include "tessera/backend/cpu/lower/split_norms.h"

#include <algorithm>

#include "tessera/ir/rewrite.h"
#include "tessera/ops/builder.h"

namespace tessera::cpu {
namespace {

// Rebuilds the batch norms of one graph.
class Splitter {
 public:
  explicit Splitter(const Graph& graph) : graph_(graph), uses_(count_uses(graph)) {}

  // True where the node was replaced.
  bool split(Rewriter& r, const Node& node) {
    const bool forward = node.op == "batch_norm";
    if (!forward && node.op != "batch_norm_backward") return false;
    if (!all_f32(node) || numel(shape_of(node)) == 0) return false;
    if (forward && !forward_can_be_split(node)) return false;
    if (!forward && !backward_can_be_split(node)) return false;
    const Parts parts(r, node, shape_of(node));
    if (forward) {
      split_forward(r, node, parts);
    } else {
      split_backward(r, node, parts);
    }
    return true;
  }

 private:
  // The rows for one norm, added to the new graph.
  class Parts {
   public:
    Parts(Rewriter& r, const Node& node, const Shape& shape)
        : b_(r.new_graph()), operands_(r.map(node.operands)), shape_(shape) {
      b_.set_place_of(node);
      for (int64_t i = 0; i < static_cast<int64_t>(shape.size()); ++i) {
        if (i != 1) folded_.push_back(i);
      }
    }

    bool has(size_t i) const { return i < operands_.size() && operands_[i].valid(); }
    ValueId operand(size_t i) const { return operands_[i]; }
    double count() const { return static_cast<double>(numel(shape_) / shape_[1]); }

    ValueId add(ValueId a, ValueId c) const { return b_.add("add", {a, c}); }
    ValueId add_scaled(ValueId a, ValueId c, double alpha) const {
      return b_.add("add", {a, c}, {{"alpha", alpha}});
    }
    ValueId sub(ValueId a, ValueId c) const { return b_.add("sub", {a, c}); }
    ValueId mul(ValueId a, ValueId c) const { return b_.add("mul", {a, c}); }
    ValueId mul(ValueId a, double factor) const { return mul(a, b_.scalar(factor, DType::f32)); }

    std::vector<ValueId> moments(ValueId x) const {
      return b_.add_all("moments", {x}, {{"dim", folded_}});
    }
    ValueId sum(ValueId x) const { return b_.add("sum", {x}, {{"dim", folded_}}); }
    ValueId inverse_deviation(ValueId var, double eps) const {
      return b_.add("rsqrt", {add(var, b_.scalar(eps, DType::f32))});
    }
    ValueId times_weight(ValueId invstd, size_t weight) const {
      return has(weight) ? mul(invstd, operand(weight)) : invstd;
    }

    // One value for each channel, beside the images.
    ValueId per_channel(ValueId value) const {
      Shape shape(shape_.size(), 1);
      shape[1] = shape_[1];
      return b_.reshape(value, shape);
    }

   private:
    mutable Builder b_;
    std::vector<ValueId> operands_;
    Shape shape_;
    std::vector<int64_t> folded_;
  };

  const Shape& shape_of(const Node& node) const {
    return graph_.type(node.operands[node.op == "batch_norm" ? 0 : 1]).shape;
  }

  bool is_used(ValueId value) const { return uses_[static_cast<size_t>(value.index)] > 0; }

  bool all_f32(const Node& node) const {
    const auto is_f32 = [&](ValueId id) {
      return !id.valid() || graph_.type(id).dtype == DType::f32;
    };
    return std::all_of(node.operands.begin(), node.operands.end(), is_f32) &&
           std::all_of(node.results.begin(), node.results.end(), is_f32);
  }

  bool forward_can_be_split(const Node& node) const {
    if (!node.attrs.flag("training")) return !is_used(node.results[1]) && !is_used(node.results[2]);
    // One element has no unbiased variance, and without momentum nothing is to be updated.
    const Shape& shape = shape_of(node);
    return numel(shape) > shape[1] && node.attrs.number("momentum") != 0;
  }

  bool backward_can_be_split(const Node& node) const {
    const auto& mask = node.attrs.integers("output_mask");
    for (size_t i = 0; i < mask.size(); ++i) {
      if (mask[i] == 0 && is_used(node.results[i])) return false;
    }
    return true;
  }

  // batch_norm(input, weight?, bias?, running_mean?, running_var?)
  void split_forward(Rewriter& r, const Node& node, const Parts& p) const {
    const double eps = node.attrs.number("eps");
    const bool training = node.attrs.flag("training");
    const auto statistics =
        training ? p.moments(p.operand(0)) : std::vector<ValueId>{p.operand(3), p.operand(4)};
    const ValueId mean = statistics[0], var = statistics[1];
    const ValueId invstd = p.inverse_deviation(var, eps);
    if (is_used(node.results[0])) {
      const ValueId scale = p.times_weight(invstd, 1);
      ValueId out = p.sub(p.operand(0), p.per_channel(mean));
      out = p.mul(out, p.per_channel(scale));
      if (p.has(2)) out = p.add(out, p.per_channel(p.operand(2)));
      r.replace(node.results[0], out);
    }
    if (training) {
      r.replace(node.results[1], mean);
      r.replace(node.results[2], invstd);
    }
    if (!p.has(3)) return;
    if (!training) {
      r.replace(node.results[3], p.operand(3));
      r.replace(node.results[4], p.operand(4));
      return;
    }
    const double take = node.attrs.number("momentum");
    const double unbiased = p.count() / (p.count() - 1);
    const auto follow = [&](ValueId running, ValueId now, double share) {
      return p.add_scaled(p.mul(running, 1 - take), now, share);
    };
    if (is_used(node.results[3])) r.replace(node.results[3], follow(p.operand(3), mean, take));
    if (is_used(node.results[4])) {
      r.replace(node.results[4], follow(p.operand(4), var, take * unbiased));
    }
  }

  // batch_norm_backward(grad, input, weight?, running_mean?, running_var?, save_mean?,
  // save_invstd?)
  //
  // With d = input - mean, the gradient of the input is
  //   (grad - mean(grad) - d * invstd^2 * mean(grad * d)) * weight * invstd.
  void split_backward(Rewriter& r, const Node& node, const Parts& p) const {
    const bool training = node.attrs.flag("train");
    const bool wants_input = is_used(node.results[0]), wants_weight = is_used(node.results[1]),
               wants_bias = is_used(node.results[2]);
    const ValueId grad = p.operand(0), input = p.operand(1);
    const ValueId mean = p.operand(training ? 5 : 3);
    const ValueId invstd =
        training ? p.operand(6) : p.inverse_deviation(p.operand(4), node.attrs.number("eps"));
    // Once for each of the two passes: the second starts only when the sums of the first are known.
    const auto distance = [&] { return p.sub(input, p.per_channel(mean)); };

    ValueId sum, dot;
    if (wants_bias || (wants_input && training)) sum = p.sum(grad);
    if (wants_weight || (wants_input && training)) {
      dot = p.mul(p.sum(p.mul(grad, distance())), invstd);
    }
    if (wants_weight) r.replace(node.results[1], dot);
    if (wants_bias) r.replace(node.results[2], sum);
    if (!wants_input) return;

    const ValueId scale = p.times_weight(invstd, 2);
    ValueId out = p.mul(grad, p.per_channel(scale));
    if (training) {
      const ValueId share = p.mul(scale, -1 / p.count());
      const ValueId slope = p.mul(p.mul(dot, invstd), share);
      const ValueId shift = p.mul(sum, share);
      // One after the other: compilers differ in the order in which they compute arguments.
      const ValueId slopes = p.per_channel(slope);
      out = p.add(out, p.mul(distance(), slopes));
      out = p.add(out, p.per_channel(shift));
    }
    r.replace(node.results[0], out);
  }

  const Graph& graph_;
  std::vector<int32_t> uses_;
};

}  // namespace

Graph split_norms(const Graph& graph) {
  Splitter splitter(graph);
  return rewrite(graph, [&](Rewriter& r, const Node& node) {
    if (!splitter.split(r, node)) r.copy(node);
  });
}

}  // namespace tessera::cpu
