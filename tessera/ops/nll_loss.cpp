// Negative log likelihood: picks the entry of the target's class from log probabilities.
#include <algorithm>
#include <limits>
#include <numeric>

#include "tessera/base/scratch.h"
#include "tessera/kernels/dispatch.h"
#include "tessera/kernels/elementwise.h"
#include "tessera/kernels/operand_reader.h"
#include "tessera/ops/families.h"
#include "tessera/ops/row_parts.h"
#include "tessera/ops/rows.h"

namespace tessera::families {
namespace {

using namespace row_parts;
using namespace rows;

enum Reduction : int64_t { none = 0, mean = 1, sum = 2 };

// Log probabilities as [batch, classes, places]; a target for each of batch * places.
struct Layout {
  int64_t batch = 1, classes = 1, places = 1;

  explicit Layout(std::span<const int64_t> shape) {
    if (shape.size() == 1) {
      classes = shape[0];
      return;
    }
    batch = shape[0];
    classes = shape[1];
    for (const int64_t size : shape.subspan(2)) places *= size;
  }
  int64_t targets() const { return batch * places; }
  int64_t at(int64_t target, int64_t label) const {
    return (target / places * classes + label) * places + target % places;
  }
};

// Reads single elements of an operand by their row-major number.
template <typename T>
class Elements {
 public:
  explicit Elements(const TensorView& view) : reader_(view, view.sizes) {}
  T operator[](int64_t i) const {
    std::byte scratch[OperandReader::scratch_bytes];
    return *reinterpret_cast<const T*>(reader_.read(i, 1, scratch));
  }

 private:
  OperandReader reader_;
};

// Labels and the weights of their classes.
class Targets {
 public:
  Targets(const KernelCall& call, size_t target, size_t weight, int64_t classes)
      : classes_(classes), ignored_(call.attrs.integer("ignore_index")) {
    const TensorView& view = call.inputs[target];
    labels_.resize(static_cast<size_t>(view.numel()));
    dispatch<Types::integers>(view.dtype, [&]<typename T>() {
      TensorView dense = view;
      dense.data = reinterpret_cast<std::byte*>(labels_.data());
      map<int32_t, T>(call.pool, {&view, 1}, dense, [](T label) { return int32_t{label}; });
    });
    weights_.assign(static_cast<size_t>(classes), 1.0F);
    if (!call.has_input(weight)) return;
    const Elements<float> weights(call.inputs[weight]);
    for (int64_t i = 0; i < classes; ++i) weights_[static_cast<size_t>(i)] = weights[i];
  }

  bool ignored(int64_t target) const { return raw(target) == ignored_; }
  int64_t label(int64_t target) const {
    const int64_t label = raw(target);
    check(label >= 0 && label < classes_, "class index {} is outside the {} classes", label,
          classes_);
    return label;
  }
  float weight(int64_t label) const { return weights_[static_cast<size_t>(label)]; }

 private:
  int64_t raw(int64_t target) const { return labels_[static_cast<size_t>(target)]; }

  int64_t classes_, ignored_;
  ScratchVector<int32_t> labels_;
  ScratchVector<float> weights_;
};

void run_forward(const KernelCall& call) {
  const Layout layout(call.inputs[0].sizes);
  const Targets targets(call, 1, 2, layout.classes);
  const Elements<float> input(call.inputs[0]);
  const int64_t reduction = call.attrs.integer("reduction");
  auto* out = call.outputs[0].as<float>();
  auto* total_weight = call.outputs[1].as<float>();

  const auto pieces = static_cast<size_t>(layout.targets() / elementwise_grain + 1);
  ScratchVector<double> losses(pieces), weights(pieces);
  call.pool.run_ranges(layout.targets(), elementwise_grain, [&](int64_t begin, int64_t end) {
    const auto piece = static_cast<size_t>(begin / elementwise_grain);
    for (int64_t i = begin; i < end; ++i) {
      float loss = 0;
      if (!targets.ignored(i)) {
        const int64_t label = targets.label(i);
        loss = -input[layout.at(i, label)] * targets.weight(label);
        weights[piece] += static_cast<double>(targets.weight(label));
      }
      losses[piece] += static_cast<double>(loss);
      if (reduction == none) out[i] = loss;
    }
  });
  if (reduction == none) {
    *total_weight = 0;
    return;
  }
  const double loss = std::accumulate(losses.begin(), losses.end(), 0.0);
  const double weight = std::accumulate(weights.begin(), weights.end(), 0.0);
  *out = static_cast<float>(reduction == mean ? loss / weight : loss);
  *total_weight = static_cast<float>(weight);
}

void run_backward(const KernelCall& call) {
  const Layout layout(call.inputs[1].sizes);
  const Targets targets(call, 2, 3, layout.classes);
  const Elements<float> grad(call.inputs[0]);
  const int64_t reduction = call.attrs.integer("reduction");
  const float total_weight = *call.inputs[4].as<float>();
  auto* out = call.outputs[0].as<float>();
  call.pool.run_ranges(call.outputs[0].numel(), elementwise_grain, [&](int64_t begin, int64_t end) {
    std::fill(out + begin, out + end, 0.0F);
  });
  call.pool.run_ranges(layout.targets(), elementwise_grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (targets.ignored(i)) continue;
      const int64_t label = targets.label(i);
      const float share = targets.weight(label) * grad[reduction == none ? i : 0];
      out[layout.at(i, label)] = -(reduction == mean ? share / total_weight : share);
    }
  });
}

// `self` and what follows it are checked; the target's shape comes back.
Shape check_operands(const OpView& op, size_t self) {
  const Shape& shape = op.shape(self);
  check(is_floating(op.type(self).dtype), ErrorKind::type,
        "log probabilities must be floating point, not {}", name_of(op.type(self).dtype));
  check(!shape.empty(), ErrorKind::value, "log probabilities need a dimension of classes");
  Shape target = shape;
  target.erase(target.begin() + (shape.size() == 1 ? 0 : 1));
  const TensorType& labels = op.type(self + 1);
  check(is_integral(labels.dtype), ErrorKind::type, "class indices must be integers, not {}",
        name_of(labels.dtype));
  check(labels.shape == target, ErrorKind::value,
        "log probabilities of shape {} need class indices of shape {}, got {}", to_string(shape),
        to_string(target), to_string(labels.shape));
  const int64_t classes = shape.size() == 1 ? shape[0] : shape[1];
  check(!op.has(self + 2) || op.shape(self + 2) == Shape{classes}, ErrorKind::value,
        "there must be one weight for each of the {} classes", classes);
  return target;
}

std::vector<TensorType> infer_forward(const OpView& op) {
  const Shape target = check_operands(op, 0);
  const DType dtype = op.type(0).dtype;
  return {{dtype, op.attrs().integer("reduction") == none ? target : Shape{}}, {dtype, {}}};
}

std::vector<TensorType> infer_backward(const OpView& op) {
  check_operands(op, 1);
  return {op.type(1)};
}

Cost forward_cost(const OpView& op, std::span<const TensorType>) {
  const int64_t targets = numel(op.shape(1));
  return GatherCost{targets, targets * 8};
}

Cost backward_cost(const OpView& op, std::span<const TensorType> results) {
  return GatherCost{numel(op.shape(2)), bytes(results[0])};
}

std::vector<Sample> samples(bool spatial, bool gradient) {
  std::vector<Sample> all;
  const Shape shape = spatial ? Shape{3, 5, 4, 2} : Shape{7, 5};
  const Shape target = spatial ? Shape{3, 4, 2} : Shape{7};
  for (const int64_t reduction : {none, mean, sum}) {
    for (const int64_t ignored : {-100, 2}) {
      Sample one{{reals(shape, {-4, 0}), integers(target, {0, 5}),
                  ignored < 0 ? left_out() : reals({5}, {0.5, 2})},
                 {{"reduction", reduction}, {"ignore_index", ignored}}};
      if (gradient) {
        one.operands.insert(one.operands.begin(), reals(reduction == none ? target : Shape{}));
        one.operands.push_back(reals({}, {3, 9}));
      }
      all.push_back(std::move(one));
    }
  }
  if (spatial || gradient) return all;
  all.push_back({{reals({5}, {-4, 0}), integers({}, {0, 5})}});
  all.push_back({{reals({17000, 3}, {-4, 0}), integers({17000}, {0, 3})}});
  return all;
}

OpDef row(std::string name, bool spatial, bool gradient) {
  OpDef def;
  def.name = std::move(name);
  def.operands =
      gradient ? "grad_output, self, target, weight?, total_weight" : "self, target, weight?";
  def.results = gradient ? "grad_input" : "output, total_weight";
  def.doc = gradient ? "gradient of negative log likelihood"
                     : "negative log likelihood of the target classes";
  def.kind = gradient ? Kind::gather : Kind::reduction;
  def.attrs = {integer("reduction", mean), integer("ignore_index", -100)};
  def.aten = {{def.name, same_arguments(def)}};
  def.infer = gradient ? infer_backward : infer_forward;
  def.cost = gradient ? backward_cost : forward_cost;
  def.cpu = gradient ? run_backward : run_forward;
  def.samples = samples(spatial, gradient);
  return def;
}

}  // namespace

std::span<const OpDef> nll_loss() {
  static const std::vector<OpDef> rows = {
      row("nll_loss_forward", false, false),
      row("nll_loss_backward", false, true),
      row("nll_loss2d_forward", true, false),
      row("nll_loss2d_backward", true, true),
  };
  return rows;
}

}  // namespace tessera::families
