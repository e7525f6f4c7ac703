#include "tessera/backend/cpu/lower/fuse_updates.h"

#include <algorithm>
#include <optional>

#include "tessera/base/geometry.h"
#include "tessera/ir/rewrite.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/partials.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/update_of_product.h"

namespace tessera::cpu {
namespace {

using optimizer_parts::grad;

// Smaller gradients stay in the first-level cache on their way to the update.
constexpr int64_t least_bytes = 16 << 10;
// Outer products, of a batch of one. Deeper ones take their time to compute, and are better at it
// where they need not share the caches with the weights.
constexpr int64_t most_depth = 1;

struct Product {
  const Node* matmul = nullptr;
  const Node* view = nullptr;  // that the update sees it through: the transposed product
};

class UpdateFuser {
 public:
  explicit UpdateFuser(const Graph& graph) : graph_(graph), uses_(count_uses(graph)) {
    products_.resize(static_cast<size_t>(graph.node_count()));
    for (int32_t i = 0; i < graph.node_count(); ++i) {
      if (const auto product = gradient_of(graph.node({i}))) add(i, *product);
    }
  }

  Graph fuse() const {
    Rewriter rewriter(graph_);
    for (int32_t i = 0; i < graph_.node_count(); ++i) {
      const Node& node = graph_.node({i});
      if (std::find(gone_.begin(), gone_.end(), &node) != gone_.end()) continue;
      const Product& product = products_[static_cast<size_t>(i)];
      if (product.matmul) {
        write(rewriter, node, product);
      } else {
        rewriter.copy(node);
      }
    }
    return rewriter.finish();
  }

 private:
  void add(int32_t update, const Product& product) {
    products_[static_cast<size_t>(update)] = product;
    gone_.push_back(product.matmul);
    if (product.view) gone_.push_back(product.view);
  }

  // What `update` alone reads as its gradient, where the two should be one.
  std::optional<Product> gradient_of(const Node& update) const {
    if (update.phase != Phase::update || op(update).kind != Kind::update) return std::nullopt;
    if (!optimizer_parts::update_of_product(op(update))) return std::nullopt;
    Product product;
    product.matmul = only_used_by_one(update.operands[grad]);
    if (product.matmul && op(*product.matmul).kind == Kind::view) {
      product.view = product.matmul;
      product.matmul = only_used_by_one(product.view->operands[0]);
    }
    if (!product.matmul || product.matmul->op != "matmul") return std::nullopt;
    if (product.matmul->phase != Phase::micro_batch) return std::nullopt;
    if (sums_in_halves(product.matmul->attrs)) return std::nullopt;
    if (product.view && !is_transposed(*product.view)) return std::nullopt;
    return pays(*product.matmul) ? std::optional(product) : std::nullopt;
  }

  const Node* only_used_by_one(ValueId value) const {
    return uses_[static_cast<size_t>(value.index)] == 1 ? graph_.producer(value) : nullptr;
  }

  bool is_transposed(const Node& view) const {
    const Shape& shape = graph_.type(view.operands[0]).shape;
    if (shape.size() != 2) return false;
    const Geometry geometry{view.attrs.integers("shape"), view.attrs.integers("strides"),
                            view.attrs.integer("offset")};
    return geometry.shape == Shape{shape[1], shape[0]} &&
           same_elements(geometry, {geometry.shape, {1, shape[1]}, 0});
  }

  // The factors are kept until the update instead of the gradient.
  bool pays(const Node& matmul) const {
    const TensorType& type = graph_.type(matmul.results[0]);
    if (type.shape.size() != 2 || bytes(type) < least_bytes) return false;
    if (graph_.type(matmul.operands[0]).shape[1] > most_depth) return false;
    int64_t kept = 0;
    for (const ValueId factor : matmul.operands) {
      const ValueId memory = memory_of(factor);
      if (is_state(memory)) return false;
      kept += bytes(graph_.type(memory));
    }
    return kept <= bytes(type);
  }

  ValueId memory_of(ValueId value) const {
    const Node* producer = graph_.producer(value);
    while (producer && op(*producer).kind == Kind::view) {
      value = producer->operands[0];
      producer = graph_.producer(value);
    }
    return value;
  }

  // Earlier updates would have to leave it in its place.
  bool is_state(ValueId value) const {
    const auto& states = graph_.states();
    return std::any_of(states.begin(), states.end(), [&](const State& state) {
      return memory_of(state.initial) == value || memory_of(state.after_micro_batch) == value ||
             memory_of(state.after_update) == value;
    });
  }

  static void write(Rewriter& rewriter, const Node& update, const Product& product) {
    Builder builder(rewriter.new_graph());
    builder.set_place_of(update);
    ValueId a = rewriter.map(product.matmul->operands[0]);
    ValueId b = rewriter.map(product.matmul->operands[1]);
    if (product.view) {
      const std::vector<int64_t> turned = {1, 0};
      a = builder.permute(a, turned);
      b = builder.permute(b, turned);
      std::swap(a, b);
    }
    std::vector<ValueId> operands;
    for (size_t i = 0; i < update.operands.size(); ++i)
      operands.push_back(i == grad ? a : rewriter.map(update.operands[i]));
    operands.push_back(b);
    const OpDef* row = optimizer_parts::update_of_product(op(update));
    const auto results = builder.add_all(row->name, std::move(operands), update.attrs);
    for (size_t i = 0; i < results.size(); ++i) rewriter.replace(update.results[i], results[i]);
  }

  const Graph& graph_;
  std::vector<int32_t> uses_;
  std::vector<Product> products_;  // by node: that of an update
  std::vector<const Node*> gone_;
};

}  // namespace

Graph fuse_updates(const Graph& graph) { return UpdateFuser(graph).fuse(); }

}  // namespace tessera::cpu
