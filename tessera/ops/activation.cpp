// The non-linearities of neural networks and their gradients.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "tessera/kernels/scalar_math.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/families.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/row_parts.h"
#include "tessera/ops/rows.h"

namespace tessera::families {
namespace {

using namespace row_parts;
using namespace rows;

float value_of(const Attrs& attrs, std::string_view name) {
  return static_cast<float>(attrs.number(name));
}

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// --- functions with attributes ---

constexpr float sqrt_half = std::numbers::sqrt2_v<float> / 2;
constexpr float gelu_cubic = 0.044715F;
constexpr float gelu_scale = 0.7978845608028654F;  // sqrt(2 / pi)

bool approximates(const Attrs& attrs) { return attrs.text("approximate") == "tanh"; }

constexpr auto gelu = [](const Attrs& attrs) {
  return [tanh_form = approximates(attrs)](float x) {
    if (!tanh_form) return x * 0.5F * (1 + std::erf(x * sqrt_half));
    return 0.5F * x * (1 + std::tanh(gelu_scale * (x + gelu_cubic * x * x * x)));
  };
};

constexpr auto gelu_gradient = [](const Attrs& attrs) {
  return [tanh_form = approximates(attrs)](float g, float x) {
    if (!tanh_form) {
      const float below = 0.5F * (1 + std::erf(x * sqrt_half));
      const float density = std::exp(x * x * -0.5F) * gelu_scale * 0.5F;
      return g * (below + x * density);
    }
    const float t = std::tanh(gelu_scale * (x + gelu_cubic * x * x * x));
    const float inner = gelu_scale * (1 + 3 * gelu_cubic * x * x);
    return g * (0.5F * (1 + t) + 0.5F * x * (1 - t * t) * inner);
  };
};

constexpr auto hardtanh = [](const Attrs& attrs) {
  return [low = attrs.number("min_val"), high = attrs.number("max_val")]<typename T>(T x) {
    return minimum(maximum(x, static_cast<T>(low)), static_cast<T>(high));
  };
};

constexpr auto hardtanh_gradient = [](const Attrs& attrs) {
  return [low = value_of(attrs, "min_val"), high = value_of(attrs, "max_val")](float g, float x) {
    return x > low && x < high ? g : 0.0F;
  };
};

constexpr auto hardswish_gradient = [](float g, float x) {
  if (x < -3) return 0.0F;
  return x >= 3 ? g : g * (x / 3 + 0.5F);
};

constexpr auto elu = [](const Attrs& attrs) {
  const float scale = value_of(attrs, "scale");
  const float negative = value_of(attrs, "alpha") * scale;
  return [=, inner = value_of(attrs, "input_scale")](float x) {
    return x <= 0 ? std::expm1(x * inner) * negative : x * scale;
  };
};

constexpr auto elu_gradient = [](const Attrs& attrs) {
  const float scale = value_of(attrs, "scale");
  const float negative = value_of(attrs, "alpha") * scale;
  return [=, inner = value_of(attrs, "input_scale"), is_result = attrs.flag("is_result")](float g,
                                                                                          float x) {
    if (x > 0) return g * scale;
    return is_result ? g * inner * (x + negative) : g * inner * negative * std::exp(x * inner);
  };
};

constexpr auto celu = [](const Attrs& attrs) {
  return [alpha = value_of(attrs, "alpha")](float x) {
    return x <= 0 ? std::expm1(x * (1 / alpha)) * alpha : x;
  };
};

constexpr auto leaky_relu = [](const Attrs& attrs) {
  return [slope = value_of(attrs, "negative_slope")](float x) { return x > 0 ? x : x * slope; };
};

constexpr auto leaky_relu_gradient = [](const Attrs& attrs) {
  return [slope = value_of(attrs, "negative_slope")](float g, float x) {
    return x > 0 ? g : g * slope;
  };
};

constexpr auto softplus = [](const Attrs& attrs) {
  return [beta = value_of(attrs, "beta"), limit = value_of(attrs, "threshold")](float x) {
    return x * beta > limit ? x : std::log1p(std::exp(x * beta)) / beta;
  };
};

constexpr auto softplus_gradient = [](const Attrs& attrs) {
  return [beta = value_of(attrs, "beta"), limit = value_of(attrs, "threshold")](float g, float x) {
    const float z = std::exp(x * beta);
    return x * beta > limit ? g : g * z / (z + 1);
  };
};

constexpr auto threshold = [](const Attrs& attrs) {
  return [limit = attrs.number("threshold"), value = attrs.number("value")]<typename T>(T x) {
    return x <= static_cast<T>(limit) ? static_cast<T>(value) : x;
  };
};

constexpr auto threshold_gradient = [](const Attrs& attrs) {
  return [limit = attrs.number("threshold")]<typename T>(T g, T x) {
    return x <= static_cast<T>(limit) ? T{} : g;
  };
};

constexpr auto hardshrink = [](const Attrs& attrs) {
  return
      [lambd = value_of(attrs, "lambd")](float x) { return x >= -lambd && x <= lambd ? 0.0F : x; };
};

constexpr auto softshrink = [](const Attrs& attrs) {
  return [lambd = value_of(attrs, "lambd")](float x) {
    return x > lambd ? x - lambd : x < -lambd ? x + lambd : x * 0.0F;  // what is no number stays so
  };
};

constexpr auto shrink_gradient = [](const Attrs& attrs) {
  return [lambd = value_of(attrs, "lambd")](float g, float x) {
    return x < -lambd || x > lambd ? g : 0.0F;
  };
};

// --- logarithm of the sigmoid: the buffer keeps exp(-|x|) for the gradient ---

std::vector<TensorType> infer_log_sigmoid(const OpView& op) {
  const TensorType type = infer_map<Types::floats, Result::same>(op)[0];
  return {type, type};
}

void run_log_sigmoid(const KernelCall& call) {
  const auto keep = [](float x) { return std::exp(-std::abs(x)); };
  map<float, float>(call.pool, call.inputs, call.outputs[1], keep);
  map<float, float>(call.pool, call.inputs, call.outputs[0],
                    [&](float x) { return std::min(x, 0.0F) - std::log1p(keep(x)); });
}

constexpr auto log_sigmoid_gradient = [](float g, float x, float buffer) {
  const float ratio = buffer / (1 + buffer);
  return x < 0 ? g * (1 - ratio) : g * ratio;
};

// --- prelu: one slope for all, or one for each channel (dimension 1) ---

Shape slope_shape(const Shape& input, const Shape& weight) {
  Shape shape(std::max<size_t>(input.size(), 1), 1);
  if (input.empty()) shape.clear();
  if (numel(weight) != 1) shape[1] = numel(weight);
  return shape;
}

void check_slopes(const Shape& input, const Shape& weight) {
  const int64_t slopes = numel(weight);
  const int64_t channels = input.size() > 1 ? input[1] : 1;
  check(slopes == 1 || slopes == channels, ErrorKind::value,
        "prelu needs one weight or one for each of the {} channels, got {}", channels, slopes);
}

std::vector<TensorType> infer_prelu(const OpView& op) {
  common_type(op, Types::floats);
  check_slopes(op.shape(0), op.shape(1));
  return {op.type(0)};
}

std::vector<TensorType> infer_prelu_backward(const OpView& op) {
  common_type(op, Types::floats);
  OperandChecks(op, "prelu").shape(0, "the gradient", op.shape(1));
  check_slopes(op.shape(1), op.shape(2));
  return {op.type(1), op.type(2)};
}

// x above 0, x times its slope below; slopes have a shape that goes with x.
ValueId bent(Builder& builder, ValueId x, ValueId slopes) {
  const ValueId zero = builder.scalar(0, builder.type(x).dtype);
  const ValueId scaled = builder.add("mul", {slopes, x});
  return builder.add("where", {builder.add("gt", {x, zero}), x, scaled});
}

// The gradients of x and, for each element of x, of its slope.
std::pair<ValueId, ValueId> bent_backward(Builder& builder, ValueId grad, ValueId x,
                                          ValueId slopes) {
  const ValueId zero = builder.scalar(0, builder.type(x).dtype);
  const ValueId positive = builder.add("gt", {x, zero});
  const ValueId scaled = builder.add("mul", {slopes, grad});
  return {builder.add("where", {positive, grad, scaled}),
          builder.add("where", {positive, zero, builder.add("mul", {x, grad})})};
}

std::vector<ValueId> decompose_prelu(Builder& builder, const Node& node) {
  const ValueId x = node.operands[0];
  const Shape shape = slope_shape(builder.shape(x), builder.shape(node.operands[1]));
  return {bent(builder, x, builder.reshape(node.operands[1], shape))};
}

std::vector<ValueId> decompose_prelu_backward(Builder& builder, const Node& node) {
  const ValueId x = node.operands[1];
  const ValueId weight = node.operands[2];
  const Shape shape = slope_shape(builder.shape(x), builder.shape(weight));
  auto [input_grad, weight_grad] =
      bent_backward(builder, node.operands[0], x, builder.reshape(weight, shape));
  std::vector<int64_t> folded;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) folded.push_back(static_cast<int64_t>(i));
  }
  if (!folded.empty()) weight_grad = builder.add("sum", {weight_grad}, {{"dim", folded}});
  return {input_grad, builder.reshape(weight_grad, builder.shape(weight))};
}

// PyTorch 2 brings the weights into a shape that goes with x before it calls its kernel, and sums
// their gradient itself.
std::vector<TensorType> infer_prelu_kernel(const OpView& op) {
  return {{common_type(op, Types::floats), common_shape(op)}};
}

std::vector<TensorType> infer_prelu_kernel_backward(const OpView& op) {
  const TensorType result{common_type(op, Types::floats), common_shape(op)};
  return {result, result};
}

std::vector<ValueId> decompose_prelu_kernel(Builder& builder, const Node& node) {
  return {bent(builder, node.operands[0], node.operands[1])};
}

std::vector<ValueId> decompose_prelu_kernel_backward(Builder& builder, const Node& node) {
  const ValueId grad = node.operands[0], weight = node.operands[2];
  const Shape shape = broadcast(broadcast(builder.shape(grad), builder.shape(node.operands[1])),
                                builder.shape(weight));
  const ValueId x = builder.expand(node.operands[1], shape);  // the weights may have more places
  const auto [input_grad, weight_grad] = bent_backward(builder, grad, x, weight);
  return {input_grad, weight_grad};
}

std::vector<Sample> prelu_samples(bool gradient) {
  std::vector<Sample> samples;
  for (const auto& [input, weight] :
       {std::pair<Shape, Shape>{{4, 3}, {1}}, {{2, 3, 5}, {3}}, {{2, 5, 3, 2}, {5}}, {{7}, {1}}}) {
    Sample one{{reals(input), reals(weight)}};
    if (gradient) one.operands.insert(one.operands.begin(), reals(input));
    samples.push_back(std::move(one));
  }
  return samples;
}

// --- glu: the first half of a dimension, gated by the second ---

Shape half_shape(Shape shape, const Attrs& attrs) {
  check(!shape.empty(), ErrorKind::value, "glu: a scalar cannot be halved");
  const int64_t dim = wrap_dim(attrs.integer("dim"), static_cast<int64_t>(shape.size()));
  int64_t& size = shape[static_cast<size_t>(dim)];
  check(size % 2 == 0, ErrorKind::value, "glu: dimension {} of size {} cannot be halved", dim,
        size);
  size /= 2;
  return shape;
}

std::vector<TensorType> infer_glu(const OpView& op) {
  return {{common_type(op, Types::floats), half_shape(op.shape(0), op.attrs())}};
}

std::vector<TensorType> infer_glu_backward(const OpView& op) {
  common_type(op, Types::floats);
  const Shape half = half_shape(op.shape(1), op.attrs());
  check(op.shape(0) == half, ErrorKind::value, "glu: the gradient has shape {}, the result {}",
        to_string(op.shape(0)), to_string(half));
  return {op.type(1)};
}

// Half 0 or 1 of the dimension.
ValueId half_of(Builder& builder, ValueId x, const Attrs& attrs, int64_t which) {
  const Shape shape = builder.shape(x);
  const Shape half = half_shape(shape, attrs);
  const Strides strides = contiguous_strides(shape);
  const auto dim =
      static_cast<size_t>(wrap_dim(attrs.integer("dim"), static_cast<int64_t>(shape.size())));
  return builder.view(x, half, strides, which * half[dim] * strides[dim]);
}

std::vector<ValueId> decompose_glu(Builder& builder, const Node& node) {
  const ValueId x = node.operands[0];
  const ValueId gate = builder.add("sigmoid", {half_of(builder, x, node.attrs, 1)});
  return {builder.add("mul", {half_of(builder, x, node.attrs, 0), gate})};
}

std::vector<ValueId> decompose_glu_backward(Builder& builder, const Node& node) {
  const ValueId grad = node.operands[0];
  const ValueId x = node.operands[1];
  const ValueId gate = builder.add("sigmoid", {half_of(builder, x, node.attrs, 1)});
  const ValueId gated = builder.add("mul", {grad, half_of(builder, x, node.attrs, 0)});
  return {builder.add(
      "cat", {builder.add("mul", {grad, gate}), builder.add("sigmoid_backward", {gated, gate})},
      {{"dim", node.attrs.integer("dim")}})};
}

std::vector<Sample> hardtanh_samples() {
  const Attrs relu6 = {{"min_val", 0.0}, {"max_val", 6.0}};
  std::vector<Sample> samples = map_samples(Types::floats, 1, {{-8, 8}}, relu6);
  samples.push_back({{integers({7}, {-8, 8})}});
  samples.push_back({{sample(DType::u8, {7}, {0, 9})}, relu6});
  return samples;
}

AttrSchema elu_attrs() {
  return {number("alpha", 1), number("scale", 1), number("input_scale", 1)};
}
AttrSchema elu_backward_attrs() { return joined(elu_attrs(), {flag("is_result", false)}); }

std::vector<OpDef> make_rows() {
  const Attrs selu_like = {{"alpha", 1.5}, {"scale", 1.1}, {"input_scale", 0.7}};
  using enum Types;
  const AttrSchema bounds = {number("min_val", -1), number("max_val", 1)};
  const AttrSchema slope = {number("negative_slope", 0.01)};
  const AttrSchema lambd = {number("lambd", 0.5)};
  const AttrSchema plus = {number("beta", 1), number("threshold", 20)};
  const AttrSchema approximate = {text("approximate", "none")};
  const Attrs with_tanh = {{"approximate", std::string("tanh")}};
  const Attrs short_plus = {{"beta", 2.0}, {"threshold", 1.5}};
  const AttrSchema result_slope = {number("negative_slope", 0.01), flag("self_is_result", false)};

  return {
      passing_on(
          unary<numbers, 1, [](auto x) { return x < 0 ? decltype(x){} : x; }>("relu", "max(x, 0)"),
          {0}),
      unary<floats, 22, [](float x) { return sigmoid(x); }>("sigmoid", "1 / (1 + exp(-x))"),
      unary<floats, 24, [](float x) { return x / (1 + std::exp(-x)); }>("silu", "x * sigmoid(x)"),
      unary<floats, 60, [](float x) { return x * std::tanh(std::log1p(std::exp(x))); }>(
          "mish", "x * tanh(softplus(x))"),
      unary<floats, 5, [](float x) { return x * std::min(std::max(x + 3, 0.0F), 6.0F) / 6; }>(
          "hardswish", "x * clamp(x + 3, 0, 6) / 6", {-5, 5}),
      unary<floats, 4, [](float x) { return std::min(std::max(x + 3, 0.0F), 6.0F) / 6; }>(
          "hardsigmoid", "clamp(x + 3, 0, 6) / 6", {-5, 5}),
      map_row<floats, 25, 1, gelu>({"gelu",
                                    "self",
                                    "x times the normal distribution up to x",
                                    approximate,
                                    {{}},
                                    with_tanh}),
      map_row<numbers, 2, 1, hardtanh>({"hardtanh",
                                        "self",
                                        "x brought between min_val and max_val",
                                        bounds,
                                        {{}},
                                        {},
                                        {{"hardtanh", "self | min_val, max_val"}},
                                        hardtanh_samples()}),
      map_row<floats, 22, 1, elu>(
          {"elu", "self", "x above 0, alpha * (exp(x) - 1) below", elu_attrs(), {{}}, selu_like}),
      map_row<floats, 22, 1, celu>({"celu",
                                    "self",
                                    "x above 0, alpha * (exp(x / alpha) - 1) below",
                                    {number("alpha", 1)},
                                    {{}},
                                    {{"alpha", 1.7}}}),
      map_row<floats, 2, 1, leaky_relu>({"leaky_relu",
                                         "self",
                                         "x above 0, x * negative_slope below",
                                         slope,
                                         {{}},
                                         {{"negative_slope", 0.2}}}),
      map_row<floats, 40, 1, softplus>(
          {"softplus", "self", "log(1 + exp(beta * x)) / beta", plus, {{}}, short_plus}),
      map_row<numbers, 1, 1, threshold>({"threshold",
                                         "self",
                                         "x above the threshold, value elsewhere",
                                         {number("threshold", 0), number("value", 0)},
                                         {{}},
                                         {{"threshold", 1.0}, {"value", 3.0}}}),
      map_row<floats, 2, 1, hardshrink>({"hardshrink",
                                         "self",
                                         "0 within lambd of 0, x elsewhere",
                                         lambd,
                                         {{}},
                                         {{"lambd", 0.9}}}),
      map_row<floats, 3, 1, softshrink>(
          {"softshrink", "self", "x brought lambd closer to 0", lambd, {{}}, {{"lambd", 0.9}}}),

      passing_on(map_row<numbers, 1, 2, threshold_gradient>({"threshold_backward",
                                                             "grad_output, self",
                                                             "gradient of threshold and relu",
                                                             {number("threshold", 0)},
                                                             {{}},
                                                             {{"threshold", 1.0}}}),
                 {0}),
      backward<3, [](float g, float y) { return g * (1 - y) * y; }>(
          "sigmoid_backward", "grad_output, output", "gradient of sigmoid from its result"),
      backward<3, [](float g, float y) { return g * (1 - y * y); }>(
          "tanh_backward", "grad_output, output", "gradient of tanh from its result"),
      backward<28,
               [](float g, float x) {
                 const float s = sigmoid(x);
                 return g * s * (1 + x * (1 - s));
               }>("silu_backward", "grad_output, self", "gradient of silu"),
      backward<80,
               [](float g, float x) {
                 const float t = std::tanh(std::log1p(std::exp(x)));
                 return g * (t + x * sigmoid(x) * (1 - t * t));
               }>("mish_backward", "grad_output, self", "gradient of mish"),
      backward<4, hardswish_gradient>("hardswish_backward", "grad_output, self",
                                      "gradient of hardswish"),
      backward<2, [](float g, float x) { return std::abs(x) < 3 ? g / 6 : 0; }>(
          "hardsigmoid_backward", "grad_output, self", "gradient of hardsigmoid"),
      map_row<floats, 50, 2, gelu_gradient>(
          {"gelu_backward", "grad_output, self", "gradient of gelu", approximate, {{}}, with_tanh}),
      map_row<floats, 2, 2, hardtanh_gradient>({"hardtanh_backward",
                                                "grad_output, self",
                                                "gradient of hardtanh",
                                                bounds,
                                                {{}},
                                                {{"min_val", 0.0}, {"max_val", 6.0}}}),
      map_row<floats, 24, 2, elu_gradient>({"elu_backward",
                                            "grad_output, self_or_result",
                                            "gradient of elu, from its input or its result",
                                            elu_backward_attrs(),
                                            {{}},
                                            selu_like}),
      map_row<floats, 2, 2, leaky_relu_gradient>({"leaky_relu_backward",
                                                  "grad_output, self",
                                                  "gradient of leaky_relu",
                                                  result_slope,
                                                  {{}},
                                                  {{"negative_slope", 0.2}}}),
      map_row<floats, 24, 2, softplus_gradient>({"softplus_backward",
                                                 "grad_output, self",
                                                 "gradient of softplus",
                                                 plus,
                                                 {{}},
                                                 short_plus}),
      map_row<floats, 2, 2, shrink_gradient>({"hardshrink_backward",
                                              "grad_out, self",
                                              "gradient of hardshrink",
                                              lambd,
                                              {{}},
                                              {{"lambd", 0.9}}}),
      map_row<floats, 2, 2, shrink_gradient>({"softshrink_backward",
                                              "grad_output, self",
                                              "gradient of softshrink",
                                              lambd,
                                              {{}},
                                              {{"lambd", 0.9}}}),
      {.name = "log_sigmoid_forward",
       .operands = "self",
       .results = "output, buffer",
       .doc = "log(sigmoid(x)), and exp(-|x|) for its gradient",
       .aten = {{"log_sigmoid_forward", "self"}},
       .traits = {.promotion = Promotion::floating},
       .infer = infer_log_sigmoid,
       .cost = elementwise_cost<45>,
       .cpu = run_log_sigmoid,
       .samples = map_samples(floats, 1, {{}}, {})},
      map_row<floats, 4, 3, without_attrs<log_sigmoid_gradient>>(
          {.name = "log_sigmoid_backward",
           .operands = "grad_output, self, buffer",
           .doc = "gradient of log_sigmoid_forward",
           .domains = {{}, {}, {0.1, 1}}}),
      {.name = "glu",
       .operands = "self",
       .results = "out",
       .doc = "the first half of a dimension times the sigmoid of the second",
       .kind = Kind::composite,
       .attrs = {integer("dim", -1)},
       .aten = {{"glu", "self | dim"}},
       .infer = infer_glu,
       .cost = elementwise_cost<24>,
       .decompose = decompose_glu,
       .samples = {{{reals({3, 8})}}, {{reals({2, 6, 5})}, {{"dim", attr(1)}}}}},
      {.name = "glu_backward",
       .operands = "grad_output, self",
       .results = "grad_input",
       .doc = "gradient of glu",
       .kind = Kind::composite,
       .attrs = {integer("dim", -1)},
       .aten = {{"glu_backward", "grad_output, self | dim"}},
       .infer = infer_glu_backward,
       .cost = elementwise_cost<26>,
       .decompose = decompose_glu_backward,
       .samples = {{{reals({3, 4}), reals({3, 8})}},
                   {{reals({2, 3, 5}), reals({2, 6, 5})}, {{"dim", attr(1)}}}}},
      {.name = "prelu",
       .operands = "self, weight",
       .results = "out",
       .doc = "x above 0, x times the channel's weight below",
       .kind = Kind::composite,
       .aten = {{"prelu", "self, weight"}},
       .infer = infer_prelu,
       .cost = elementwise_cost<2>,
       .decompose = decompose_prelu,
       .samples = prelu_samples(false)},
      {.name = "prelu_backward",
       .operands = "grad_output, self, weight",
       .results = "grad_input, grad_weight",
       .doc = "gradients of prelu",
       .kind = Kind::composite,
       .aten = {{"prelu_backward", "grad_output, self, weight"}},
       .infer = infer_prelu_backward,
       .cost = elementwise_cost<4>,
       .decompose = decompose_prelu_backward,
       .samples = prelu_samples(true)},
      {.name = "prelu_kernel",
       .operands = "self, weight",
       .results = "out",
       .doc = "x above 0, x times its weight below",
       .kind = Kind::composite,
       .aten = {{"_prelu_kernel", "self, weight"}},
       .infer = infer_prelu_kernel,
       .cost = elementwise_cost<2>,
       .decompose = decompose_prelu_kernel,
       .samples = {{{reals({2, 3, 5}), reals({1, 3, 1})}}, {{reals({7}), reals({1})}}}},
      {.name = "prelu_kernel_backward",
       .operands = "grad_output, self, weight",
       .results = "grad_input, grad_weight",
       .doc = "gradients of prelu_kernel",
       .kind = Kind::composite,
       .aten = {{"_prelu_kernel_backward", "grad_output, self, weight"}},
       .infer = infer_prelu_kernel_backward,
       .cost = elementwise_cost<4>,
       .decompose = decompose_prelu_kernel_backward,
       .samples = {{{reals({2, 3, 5}), reals({2, 3, 5}), reals({1, 3, 1})}},
                   {{reals({7}), reals({7}), reals({1})}}}},
  };
}

}  // namespace

std::span<const OpDef> activation() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera::families
