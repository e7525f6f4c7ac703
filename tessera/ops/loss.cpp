// Losses and their gradients, and the softmax that goes with them.
#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/base/scratch.h"
#include "tessera/kernels/dispatch.h"
#include "tessera/kernels/elementwise.h"
#include "tessera/kernels/softmax.h"
#include "tessera/ops/families.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/row_parts.h"
#include "tessera/ops/rows.h"

namespace tessera::families {
namespace {

using namespace row_parts;
using namespace rows;

enum Reduction : int64_t { none = 0, mean = 1, sum = 2 };

// --- losses of single elements ---
// make(attrs) gives the loss of an element; a gradient also gets `scale`, by which a mean divides.

constexpr auto squared_error = [](const Attrs&) {
  return [](float x, float t) { return (x - t) * (x - t); };
};
constexpr auto squared_error_gradient = [](const Attrs&, float scale) {
  return [norm = 2 * scale](float g, float x, float t) { return norm * (x - t) * g; };
};

constexpr auto smooth_l1 = [](const Attrs& attrs) {
  return [beta = static_cast<float>(attrs.number("beta"))](float x, float t) {
    const float z = std::abs(x - t);
    return z < beta ? 0.5F * z * z / beta : z - 0.5F * beta;
  };
};
constexpr auto smooth_l1_gradient = [](const Attrs& attrs, float scale) {
  return [beta = static_cast<float>(attrs.number("beta")), scale](float g, float x, float t) {
    const float d = x - t;
    if (d <= -beta) return -scale * g;
    return d >= beta ? scale * g : scale * d * g / beta;
  };
};

constexpr auto huber = [](const Attrs& attrs) {
  return [delta = static_cast<float>(attrs.number("delta"))](float x, float t) {
    const float z = std::abs(x - t);
    return z <= delta ? 0.5F * z * z : delta * (z - 0.5F * delta);
  };
};
constexpr auto huber_gradient = [](const Attrs& attrs, float scale) {
  return [delta = static_cast<float>(attrs.number("delta")), scale](float g, float x, float t) {
    const float d = x - t;
    if (d <= -delta) return -scale * g * delta;
    return d >= delta ? scale * g * delta : scale * d * g;
  };
};

constexpr auto soft_margin = [](const Attrs&) {
  return [](float x, float t) { return std::log1p(std::exp(-x * t)); };
};
constexpr auto soft_margin_gradient = [](const Attrs&, float scale) {
  return [scale](float g, float x, float t) {
    const float z = std::exp(-t * x);
    return -scale * t * z / (z + 1) * g;
  };
};

// Logarithms are cut at -100, so that a wrong certainty costs much but not everything.
constexpr auto binary_cross_entropy = [](const Attrs&) {
  return [](float x, float t, float weight) {
    check(x >= 0 && x <= 1, "all elements of input should be between 0 and 1, but one is {}", x);
    return ((t - 1) * std::max(std::log1p(-x), -100.0F) - t * std::max(std::log(x), -100.0F)) *
           weight;
  };
};
constexpr auto binary_cross_entropy_gradient = [](const Attrs&, float scale) {
  return [scale](float g, float x, float t, float weight) {
    return g * (x - t) / std::max((1 - x) * x, 1e-12F) * weight * scale;
  };
};

constexpr auto cross_entropy_of_logits = [](const Attrs&) {
  return [](float x, float t, float weight, float positive) {
    const float shift = std::max(-x, 0.0F);
    const float log_sum = std::log(std::exp(-shift) + std::exp(-x - shift)) + shift;
    return ((1 - t) * x + ((positive - 1) * t + 1) * log_sum) * weight;
  };
};

template <size_t>
using Float = float;

// A weight that was left out is 1 for every element.
template <size_t count>
std::array<TensorView, count> with_default_weights(const KernelCall& call) {
  static float one = 1;
  std::array<TensorView, count> operands;
  for (size_t i = 0; i < count; ++i) {
    operands[i].data = reinterpret_cast<std::byte*>(&one);
    if (call.has_input(i)) operands[i] = call.inputs[i];
  }
  return operands;
}

template <auto make, size_t count>
void run_loss(const KernelCall& call) {
  const auto operands = with_default_weights<count>(call);
  const auto f = make(call.attrs);
  const int64_t reduction = call.attrs.integer("reduction");
  [&]<size_t... i>(std::index_sequence<i...>) {
    if (reduction == none) {
      return map<float, Float<i>...>(call.pool, operands, call.outputs[0], f);
    }
    const ScratchShape shape = scratch_broadcast(operands[0].sizes, operands[1].sizes);
    double total = map_sum<Float<i>...>(call.pool, operands, shape, f);
    if (reduction == mean) total /= static_cast<double>(numel(shape));
    *call.outputs[0].as<float>() = static_cast<float>(total);
  }
  (std::make_index_sequence<count>{});
}

template <auto make, size_t count>
void run_loss_gradient(const KernelCall& call) {
  const auto operands = with_default_weights<count>(call);
  const bool divides = call.attrs.integer("reduction") == mean;
  const auto elements = static_cast<double>(call.outputs[0].numel());
  const auto f = make(call.attrs, divides ? static_cast<float>(1 / elements) : 1.0F);
  [&]<size_t... i>(std::index_sequence<i...>) {
    map<float, Float<i>...>(call.pool, operands, call.outputs[0], f);
  }
  (std::make_index_sequence<count>{});
}

std::vector<TensorType> infer_loss(const OpView& op) {
  check_reduction(op.attrs());
  const DType dtype = common_type(op, Types::floats);
  const Shape shape = broadcast(op.shape(0), op.shape(1));
  for (size_t i = 2; i < op.count(); ++i) {
    if (!op.has(i)) continue;
    check(broadcast(shape, op.shape(i)) == shape, ErrorKind::value,
          "a weight of shape {} does not broadcast to the loss's {}", to_string(op.shape(i)),
          to_string(shape));
  }
  return {{dtype, op.attrs().integer("reduction") == none ? shape : Shape{}}};
}

std::vector<TensorType> infer_loss_gradient(const OpView& op) {
  check_reduction(op.attrs());
  return {{common_type(op, Types::floats), common_shape(op)}};
}

template <int flops>
Cost loss_cost(const OpView& op, std::span<const TensorType>) {
  return ElementwiseCost{numel(broadcast(op.shape(0), op.shape(1))), flops};
}

struct LossRow {
  std::string name, operands, doc;
  AttrSchema attrs = {};  // beside the reduction
  Domain input = {}, target = {};
};

std::vector<Sample> loss_samples(const LossRow& row, size_t weights, bool gradient) {
  std::vector<Sample> samples;
  for (const Shape& shape : {Shape{4, 3}, Shape{}, Shape{17, 1003}}) {
    for (const int64_t reduction : {none, mean, sum}) {
      Sample one{{reals(shape, row.input), reals(shape, row.target)}, {{"reduction", reduction}}};
      for (size_t i = 0; i < weights; ++i) {
        const bool leave_out = reduction == sum;
        one.operands.push_back(leave_out ? left_out() : reals(shape, {0.5, 2}));
      }
      if (gradient) {
        one.operands.insert(one.operands.begin(), reals(reduction == none ? shape : Shape{}));
      }
      samples.push_back(std::move(one));
    }
  }
  return samples;
}

AttrSchema with_reduction(const AttrSchema& attrs) {
  return joined({integer("reduction", mean)}, attrs);
}

template <auto make, size_t count, int flops>
OpDef loss(const LossRow& row) {
  OpDef def{.name = row.name,
            .operands = row.operands,
            .results = "out",
            .doc = row.doc,
            .kind = Kind::reduction,
            .attrs = with_reduction(row.attrs)};
  def.aten = {{def.name, same_arguments(def)}};
  def.traits.promotion = Promotion::floating;
  def.infer = infer_loss;
  def.cost = loss_cost<flops>;
  def.cpu = run_loss<make, count>;
  def.samples = loss_samples(row, count - 2, false);
  return def;
}

template <auto make, size_t count, int flops>
OpDef loss_gradient(const LossRow& row) {
  OpDef def{.name = row.name,
            .operands = row.operands,
            .results = "grad_input",
            .doc = row.doc,
            .kind = Kind::elementwise,
            .attrs = with_reduction(row.attrs)};
  def.aten = {{def.name, same_arguments(def)}};
  def.traits.promotion = Promotion::floating;
  def.traits.in_place = {{0, 1}};
  def.traits.runs_alone = true;  // that of a mean divides by the number of elements
  def.infer = infer_loss_gradient;
  def.cost = elementwise_cost<flops>;
  def.cpu = run_loss_gradient<make, count>;
  def.samples = loss_samples(row, count - 3, true);
  return def;
}

// --- softmax ---

std::vector<TensorType> infer_softmax(const OpView& op) {
  wrap_dim(op.attrs().integer("dim"), static_cast<int64_t>(op.shape(0).size()));
  const DType dtype = common_type(op, Types::floats);
  const bool widens = op.attrs().has("half_to_float") && op.attrs().flag("half_to_float");
  return {{widens ? DType::f32 : dtype, op.shape(0)}};
}

std::vector<TensorType> infer_softmax_gradient(const OpView& op) {
  check(op.shape(0) == op.shape(1), ErrorKind::value,
        "the gradient's shape {} is not the result's {}", to_string(op.shape(0)),
        to_string(op.shape(1)));
  OperandChecks(op, "the gradient of softmax").floating(1, "the result");
  TensorType type = infer_softmax(op)[0];
  if (op.attrs().has("input_dtype")) type.dtype = op.attrs().dtype("input_dtype");
  check(is_floating(type.dtype), ErrorKind::type,
        "the gradient of softmax is floating point, not {}", name_of(type.dtype));
  return {type};
}

int64_t softmax_dim(const KernelCall& call) {
  return wrap_dim(call.attrs.integer("dim"), call.inputs[0].rank());
}

template <auto kernel>
void run_softmax(const KernelCall& call) {
  kernel(call.pool, call.inputs[0], softmax_dim(call), call.outputs[0]);
}

template <auto kernel>
void run_softmax_gradient(const KernelCall& call) {
  kernel(call.pool, call.inputs[0], call.inputs[1], softmax_dim(call), call.outputs[0]);
}

std::vector<Sample> softmax_samples(size_t operands) {
  std::vector<Sample> samples;
  const auto add = [&](const Shape& shape, int64_t dim) {
    samples.push_back({std::vector(operands, reals(shape, {-3, 0})), {{"dim", dim}}});
  };
  add({4, 5}, 1);
  add({4, 5}, 0);
  add({2, 7, 3, 5}, 1);
  add({3, 2500}, -1);
  add({5, 3, 70}, 1);
  add({}, 0);
  return samples;
}

OpDef softmax_row(std::string name, std::string doc, decltype(OpDef::cpu) cpu) {
  OpDef def{.name = std::move(name),
            .operands = "self",
            .results = "out",
            .doc = std::move(doc),
            .kind = Kind::normalization,
            .attrs = {integer("dim"), flag("half_to_float", false)}};
  def.aten = {{def.name, same_arguments(def)}};
  def.infer = infer_softmax;
  def.cost = elementwise_cost<25>;
  def.cpu = cpu;
  def.samples = softmax_samples(1);
  return def;
}

OpDef softmax_gradient_row(std::string name, std::string doc, decltype(OpDef::cpu) cpu) {
  OpDef def{.name = std::move(name),
            .operands = "grad_output, output",
            .results = "grad_input",
            .doc = std::move(doc),
            .kind = Kind::normalization,
            .attrs = {integer("dim"), maybe(data_type("input_dtype"))}};
  def.aten = {{def.name, same_arguments(def)}};
  def.infer = infer_softmax_gradient;
  def.cost = elementwise_cost<5>;
  def.cpu = cpu;
  def.samples = softmax_samples(2);
  return def;
}

}  // namespace

std::span<const OpDef> loss() {
  const Domain probability{0.05, 0.95}, zero_to_one{0, 1};
  const AttrSchema beta = {number("beta", 1)};
  const AttrSchema delta = {number("delta", 1)};
  static const std::vector<OpDef> rows = {
      softmax_row("_softmax", "exp(x) over its sum along a dimension", run_softmax<softmax>),
      softmax_row("_log_softmax", "logarithm of the softmax", run_softmax<log_softmax>),
      softmax_gradient_row("_softmax_backward_data", "gradient of the softmax from its result",
                           run_softmax_gradient<softmax_backward>),
      softmax_gradient_row("_log_softmax_backward_data",
                           "gradient of the logarithm of the softmax from its result",
                           run_softmax_gradient<log_softmax_backward>),

      loss<squared_error, 2, 3>({"mse_loss", "self, target", "squared error"}),
      loss_gradient<squared_error_gradient, 3, 3>(
          {"mse_loss_backward", "grad_output, self, target", "gradient of mse_loss"}),
      loss<smooth_l1, 2, 5>(
          {"smooth_l1_loss", "self, target", "absolute error, squared within beta of 0", beta}),
      loss_gradient<smooth_l1_gradient, 3, 5>({"smooth_l1_loss_backward",
                                               "grad_output, self, target",
                                               "gradient of smooth_l1_loss", beta}),
      loss<huber, 2, 5>(
          {"huber_loss", "self, target", "squared error, growing linearly beyond delta", delta}),
      loss_gradient<huber_gradient, 3, 5>(
          {"huber_loss_backward", "grad_output, self, target", "gradient of huber_loss", delta}),
      loss<soft_margin, 2, 40>({"soft_margin_loss", "self, target", "log(1 + exp(-target * x))"}),
      loss_gradient<soft_margin_gradient, 3, 25>({"soft_margin_loss_backward",
                                                  "grad_output, self, target",
                                                  "gradient of soft_margin_loss"}),
      loss<binary_cross_entropy, 3, 45>({"binary_cross_entropy",
                                         "self, target, weight?",
                                         "cross entropy of probabilities with targets from 0 to 1",
                                         {},
                                         probability,
                                         zero_to_one}),
      loss_gradient<binary_cross_entropy_gradient, 4, 8>({"binary_cross_entropy_backward",
                                                          "grad_output, self, target, weight?",
                                                          "gradient of binary_cross_entropy",
                                                          {},
                                                          probability,
                                                          zero_to_one}),
      loss<cross_entropy_of_logits, 4, 65>({"binary_cross_entropy_with_logits",
                                            "self, target, weight?, pos_weight?",
                                            "binary_cross_entropy of sigmoid(x)",
                                            {},
                                            {},
                                            zero_to_one}),
  };
  return rows;
}

}  // namespace tessera::families
