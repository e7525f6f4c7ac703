// Arithmetic, comparisons, logic and elementary functions. Activations have a family of their own.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/kernels/scalar_math.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/families.h"
#include "tessera/ops/row_parts.h"
#include "tessera/ops/rows.h"

namespace tessera::families {
namespace {

using namespace row_parts;
using namespace rows;

// --- functions with attributes: from the attributes to the function of an element ---

// self + alpha * other; `sign` -1 subtracts.
template <int sign>
constexpr auto scaled_sum = [](const Attrs& attrs) {
  const double alpha = sign * attrs.number("alpha");
  return [alpha]<typename T>(T a, T b) -> T {
    if constexpr (std::is_same_v<T, float>) {
      if (alpha == 1) return a + b;
      if (alpha == -1) return a - b;
      return multiply_add(b, static_cast<float>(alpha), a);
    } else if constexpr (std::is_same_v<T, bool>) {
      return a || (b && alpha != 0);
    } else {
      return add_wrapping(a, multiply_wrapping(b, static_cast<T>(static_cast<int64_t>(alpha))));
    }
  };
};

constexpr auto reverse_difference = [](const Attrs& attrs) {
  return [f = scaled_sum<-1>(attrs)](auto a, auto b) { return f(b, a); };
};

constexpr auto clamped = [](const Attrs& attrs) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double low = attrs.has("min") ? attrs.number("min") : -infinity;
  const double high = attrs.has("max") ? attrs.number("max") : infinity;
  return [low, high]<typename T>(T x) -> T {
    if constexpr (std::is_same_v<T, float>) {
      return minimum(maximum(x, static_cast<float>(low)), static_cast<float>(high));
    } else {
      return static_cast<T>(std::min(std::max<double>(x, low), high));
    }
  };
};

constexpr auto finite_numbers = [](const Attrs& attrs) {
  using Limits = std::numeric_limits<float>;
  const auto value = [&](std::string_view name, float fallback) {
    return attrs.has(name) ? static_cast<float>(attrs.number(name)) : fallback;
  };
  return [nan = value("nan", 0), high = value("posinf", Limits::max()),
          low = value("neginf", Limits::lowest())]<typename T>(T x) -> T {
    if constexpr (std::is_same_v<T, float>) {
      if (is_nan(x)) return nan;
      if (x == Limits::infinity()) return high;
      if (x == -Limits::infinity()) return low;
    }
    return x;
  };
};

constexpr auto rounded_to_decimals = [](const Attrs& attrs) {
  const int64_t decimals = attrs.integer("decimals");
  const auto scale = static_cast<float>(std::pow(10, std::abs(static_cast<double>(decimals))));
  return [scale, up = decimals >= 0](float x) {
    return up ? std::nearbyint(x * scale) / scale : std::nearbyint(x / scale) * scale;
  };
};

constexpr auto divided = [](const Attrs& attrs) {
  const std::string mode = attrs.has("rounding_mode") ? attrs.text("rounding_mode") : "";
  return [floors = mode == "floor", truncates = mode == "trunc"]<typename T>(T a, T b) -> T {
    if (floors) return divide_flooring(a, b);
    if (truncates) return divide_truncating(a, b);
    return static_cast<T>(a / b);
  };
};

constexpr auto plus_product = [](const Attrs& attrs) {
  return [value = attrs.number("value")]<typename T>(T a, T b, T c) -> T {
    if constexpr (std::is_same_v<T, float>) return a + static_cast<float>(value) * b * c;
    const T factor = static_cast<T>(static_cast<int64_t>(value));
    return add_wrapping(a, multiply_wrapping(multiply_wrapping(factor, b), c));
  };
};

constexpr auto plus_quotient = [](const Attrs& attrs) {
  return [value = static_cast<float>(attrs.number("value"))](float a, float b, float c) {
    return a + value * b / c;
  };
};

constexpr auto interpolated = [](float a, float b, float weight) {
  return weight < 0.5F ? a + weight * (b - a) : b - (b - a) * (1 - weight);
};

// --- rules and kernels that are not a plain map ---

std::vector<TensorType> infer_clamp(const OpView& op) {
  check(op.attrs().has("min") || op.attrs().has("max"), ErrorKind::value,
        "clamp needs a lower or an upper bound");
  for (const auto* name : {"min", "max"}) {
    if (!op.attrs().has(name) || is_floating(op.type(0).dtype)) continue;
    const double bound = op.attrs().number(name);
    check(bound == std::floor(bound), ErrorKind::type,
          "clamping {} needs whole bounds, got {}; cast the tensor to floating point first",
          name_of(op.type(0).dtype), bound);
  }
  return infer_map<Types::numbers, Result::same>(op);
}

std::vector<TensorType> infer_division(const OpView& op) {
  const bool rounds = op.attrs().has("rounding_mode");
  if (rounds) {
    const std::string& mode = op.attrs().text("rounding_mode");
    check(mode == "floor" || mode == "trunc", ErrorKind::value,
          "rounding_mode must be 'floor' or 'trunc', not '{}'", mode);
  }
  check(rounds || is_floating(op.type(0).dtype), ErrorKind::type,
        "division without rounding_mode needs floating point, not {}; cast the operands first",
        name_of(op.type(0).dtype));
  return infer_map<Types::numbers, Result::same>(op);
}

// Exponents that models use all the time have short forms, the same that PyTorch takes.
void run_pow(const KernelCall& call) {
  dispatch<Types::numbers>(call.inputs[0].dtype, [&]<typename T>() {
    const auto map_base = [&](const auto& f) { map_equal_types<T, T, 1>(call, f); };
    if constexpr (std::is_same_v<T, float>) {
      if (call.inputs[1].numel() == 1) {
        const float exponent = *call.inputs[1].as<float>();
        if (exponent == 0.5F) return map_base([](T x) { return std::sqrt(x); });
        if (exponent == 2) return map_base([](T x) { return x * x; });
        if (exponent == 3) return map_base([](T x) { return x * x * x; });
        if (exponent == -2) return map_base([](T x) { return 1 / (x * x); });
      }
    }
    map_equal_types<T, T, 2>(call, power<T>);
  });
}

std::vector<TensorType> infer_cast(const OpView& op) {
  const DType dtype = op.attrs().has("dtype") ? op.attrs().dtype("dtype") : op.type(0).dtype;
  return {{dtype, op.shape(0)}};
}

// A half is cast as the float that it is, and to a half goes what would be a float.
float number_of(Half x) { return to_float(x); }
template <typename T>
T number_of(T x) {
  return x;
}

template <typename Use>
void dispatch_with_half(DType dtype, const Use& use) {
  if (dtype == DType::f16) return use.template operator()<Half>();
  dispatch<Types::all>(dtype, use);
}

void run_cast(const KernelCall& call) {
  dispatch_with_half(call.inputs[0].dtype, [&]<typename From>() {
    dispatch_with_half(call.outputs[0].dtype, [&]<typename To>() {
      map<To, From>(call.pool, call.inputs, call.outputs[0], [](From x) {
        if constexpr (std::is_same_v<To, From>) {
          return x;
        } else if constexpr (std::is_same_v<To, Half>) {
          return to_half(static_cast<float>(number_of(x)));
        } else {
          return convert<To>(number_of(x));
        }
      });
    });
  });
}

// A condition and two values of one type.
void check_condition(const OpView& op, size_t condition) {
  const DType dtype = op.type(condition).dtype;
  check(dtype == DType::boolean || dtype == DType::u8, ErrorKind::type,
        "a condition must be bool, not {}; compare it with something", name_of(dtype));
}

std::vector<TensorType> infer_where(const OpView& op) {
  check_condition(op, 0);
  return {{common_type(op, Types::all, 1), common_shape(op)}};
}

void run_where(const KernelCall& call) {
  dispatch<Types::all>(call.outputs[0].dtype, [&]<typename T>() {
    map<T, uint8_t, T, T>(call.pool, call.inputs, call.outputs[0],
                          [](uint8_t condition, T a, T b) { return condition ? a : b; });
  });
}

std::vector<TensorType> infer_masked_fill(const OpView& op) {
  check_condition(op, 1);
  check(numel(op.shape(2)) == 1, ErrorKind::value, "masked_fill needs a single value, got shape {}",
        to_string(op.shape(2)));
  return {{op.type(0).dtype, broadcast(op.shape(0), op.shape(1))}};
}

void run_masked_fill(const KernelCall& call) {
  dispatch<Types::all>(call.outputs[0].dtype, [&]<typename T>() {
    T value{};
    dispatch<Types::all>(call.inputs[2].dtype,
                         [&]<typename From>() { value = convert<T>(*call.inputs[2].as<From>()); });
    map<T, T, uint8_t>(call.pool, call.inputs, call.outputs[0],
                       [value](T x, uint8_t mask) { return mask ? value : x; });
  });
}

std::vector<Sample> where_samples() {
  std::vector<Sample> samples;
  const auto add = [&](DType dtype, Shape condition, Shape a, Shape b) {
    samples.push_back({{booleans(std::move(condition)), sample(dtype, std::move(a)),
                        sample(dtype, std::move(b))}});
  };
  add(DType::f32, {2, 3}, {2, 3}, {2, 3});
  add(DType::f32, {4, 1, 5}, {3, 1}, {});
  add(DType::f32, {17, 1003}, {1003}, {17, 1});
  add(DType::i32, {}, {5}, {5});
  add(DType::u8, {5}, {5}, {});
  add(DType::boolean, {5}, {5}, {5});
  return samples;
}

std::vector<Sample> masked_fill_samples() {
  return {{{reals({2, 3}), booleans({2, 3}), reals({})}},
          {{reals({2, 3, 5}), booleans({3, 1}), reals({})}},
          {{integers({7}), booleans({7}), integers({})}}};
}

std::vector<Sample> clamp_samples() {
  return {{{reals({2, 3})}, {{"min", -0.5}, {"max", 0.7}}},
          {{reals({})}, {{"min", 0.0}}},
          {{reals({17, 1003})}, {{"max", 0.25}}},
          {{integers({9}, {-9, 9})}, {{"min", -3.0}, {"max", 4.0}}},
          {{sample(DType::u8, {9}, {0, 200})}, {{"max", 100.0}}}};
}

std::vector<Sample> cast_samples() {
  return {{{reals({3, 7}, {-9, 9})}, {{"dtype", DType::i32}}},
          {{reals({})}, {{"dtype", DType::boolean}}},
          {{integers({5}, {-5, 5})}, {{"dtype", DType::f32}}},
          {{booleans({17, 1003})}, {{"dtype", DType::f32}}},
          {{integers({5}, {0, 400})}, {{"dtype", DType::u8}}},
          {{sample(DType::i16, {2, 3})}, {{"dtype", DType::i8}}}};
}

std::vector<Sample> clamp_between_samples() {
  return {{{reals({3, 5}), reals({5}, {-1, 0}), reals({3, 1}, {0, 1})}},
          {{integers({7}, {-5, 5}), left_out(), integers({}, {-5, 5})}}};
}

std::vector<Sample> division_samples() {
  std::vector<Sample> samples;
  for (const char* mode : {"floor", "trunc"}) {
    for (const DType dtype : {DType::f32, DType::i32, DType::i16, DType::u8}) {
      samples.push_back({{sample(dtype, {4, 1, 5}, {-20, 20}), sample(dtype, {3, 1}, {1, 6})},
                         {{"rounding_mode", std::string(mode)}}});
    }
  }
  samples.push_back({{reals({7}), reals({}, {1, 6})}});
  return samples;
}

std::vector<ValueId> decompose_clamp(Builder& builder, const Node& node) {
  const auto operand = [&](size_t i) {
    return i < node.operands.size() ? node.operands[i] : ValueId{};
  };
  ValueId value = operand(0);
  if (operand(1).valid()) value = builder.add("maximum", {value, operand(1)});
  if (operand(2).valid()) value = builder.add("minimum", {value, operand(2)});
  return {value};
}

// A bit operation may also have the scalar first.
OpDef bits(OpDef row) {
  row = with_scalar(std::move(row));
  row.aten.push_back({row.name + ".Scalar_Tensor", "self, other"});
  return row;
}

std::vector<OpDef> make_rows() {
  using enum Types;
  constexpr Result boolean = Result::boolean;
  constexpr Domain positive{0.05, 4}, inside_one{-0.95, 0.95}, whole{-5, 5}, divisor{1, 6};

  std::vector<OpDef> rows = {
      passing_on(unary<numbers, 1, [](auto x) { return absolute(x); }>("abs", "|x|"), {0}),
      passing_on(unary<numbers, 1, [](auto x) { return negate(x); }>("neg", "-x"), {0}),
      unary<floats, 20, [](float x) { return std::exp(x); }>("exp", "e to the power of x"),
      unary<floats, 20, [](float x) { return std::exp2(x); }>("exp2", "2 to the power of x"),
      unary<floats, 20, [](float x) { return std::expm1(x); }>("expm1", "exp(x) - 1, exact near 0"),
      unary<floats, 20, [](float x) { return std::log(x); }>("log", "natural logarithm", positive),
      unary<floats, 20, [](float x) { return std::log1p(x); }>("log1p", "log(1 + x), exact near 0",
                                                               inside_one),
      unary<floats, 20, [](float x) { return std::log2(x); }>("log2", "logarithm to base 2",
                                                              positive),
      unary<floats, 20, [](float x) { return std::log10(x); }>("log10", "logarithm to base 10",
                                                               positive),
      unary<floats, 4, [](float x) { return std::sqrt(x); }>("sqrt", "square root", positive),
      unary<floats, 5, [](float x) { return 1 / std::sqrt(x); }>("rsqrt", "1 / sqrt(x)", positive),
      unary<floats, 4, [](float x) { return 1 / x; }>("reciprocal", "1 / x", positive),
      unary<floats, 20, [](float x) { return std::sin(x); }>("sin", "sine"),
      unary<floats, 20, [](float x) { return std::cos(x); }>("cos", "cosine"),
      unary<floats, 25, [](float x) { return std::tan(x); }>("tan", "tangent", inside_one),
      unary<floats, 20, [](float x) { return std::asin(x); }>("asin", "inverse sine", inside_one),
      unary<floats, 20, [](float x) { return std::acos(x); }>("acos", "inverse cosine", inside_one),
      unary<floats, 20, [](float x) { return std::atan(x); }>("atan", "inverse tangent"),
      unary<floats, 25, [](float x) { return std::sinh(x); }>("sinh", "hyperbolic sine"),
      unary<floats, 25, [](float x) { return std::cosh(x); }>("cosh", "hyperbolic cosine"),
      unary<floats, 20, [](float x) { return std::tanh(x); }>("tanh", "hyperbolic tangent"),
      unary<floats, 25, [](float x) { return std::asinh(x); }>("asinh", "inverse hyperbolic sine"),
      unary<floats, 25, [](float x) { return std::acosh(x); }>("acosh", "inverse hyperbolic cosine",
                                                               {1.05, 4}),
      unary<floats, 25, [](float x) { return std::atanh(x); }>(
          "atanh", "inverse hyperbolic tangent", inside_one),
      unary<floats, 20, [](float x) { return std::erf(x); }>("erf", "Gauss error function"),
      unary<floats, 20, [](float x) { return std::erfc(x); }>("erfc", "1 - erf(x)"),
      unary<numbers, 1, [](auto x) -> decltype(x) { return std::ceil(x); }>(
          "ceil", "smallest whole number not below x", whole),
      unary<numbers, 1, [](auto x) -> decltype(x) { return std::floor(x); }>(
          "floor", "largest whole number not above x", whole),
      unary<numbers, 1, [](auto x) -> decltype(x) { return std::nearbyint(x); }>(
          "round", "nearest whole number, halves to even", whole),
      map_row<floats, 3, 1, rounded_to_decimals>({.name = "round_decimals",
                                                  .operands = "self",
                                                  .doc = "nearest number of so many decimals",
                                                  .attrs = {integer("decimals", 0)},
                                                  .domains = {whole},
                                                  .sample_attrs = {{"decimals", attr(1)}},
                                                  .aten = {{"round.decimals", "self | decimals"}}}),
      unary<numbers, 1, [](auto x) -> decltype(x) { return std::trunc(x); }>(
          "trunc", "x without its fraction", whole),
      unary<floats, 2, [](float x) { return x - std::trunc(x); }>("frac", "the fraction of x",
                                                                  whole),
      spelled(unary<all, 2, [](auto x) { return sign_of(x); }>("sign", "-1, 0 or 1"),
              {{"sign", "self"}, {"sgn", "self"}}),
      unary<all, 1, [](auto x) { return std::signbit(static_cast<double>(x)); }, boolean>(
          "signbit", "whether the sign bit is set"),
      unary<all, 1, [](auto x) { return is_nan(x); }, boolean>("isnan", "whether x is NaN"),
      unary<all, 1, [](auto x) { return std::isinf(static_cast<double>(x)); }, boolean>(
          "isinf", "whether x is infinite"),
      unary<all, 1, [](auto x) { return !x; }, boolean>("logical_not", "whether x is zero"),
      unary<integers, 1,
            []<typename T>(T x) -> T {
              if constexpr (std::is_same_v<T, bool>)
                return !x;
              else
                return static_cast<T>(~x);
            }>("bitwise_not", "every bit flipped"),
      map_row<numbers, 2, 1, clamped>({.name = "clamp",
                                       .operands = "self",
                                       .doc = "x brought between min and max",
                                       .attrs = {maybe(number("min")), maybe(number("max"))},
                                       .aten = {{"clamp", "self | min, max"},
                                                {"clamp_min", "self | min"},
                                                {"clamp_max", "self | max"}},
                                       .samples = clamp_samples(),
                                       .infer = infer_clamp}),
      map_row<numbers, 3, 1, finite_numbers>(
          {.name = "nan_to_num",
           .operands = "self",
           .doc = "NaN and infinities replaced",
           .attrs = {maybe(number("nan")), maybe(number("posinf")), maybe(number("neginf"))},
           .sample_attrs = {{"nan", 1.5}, {"posinf", 2.0}}}),

      with_scalar(map_row<all, 2, 2, scaled_sum<1>>({.name = "add",
                                                     .operands = "self, other",
                                                     .doc = "self + alpha * other",
                                                     .attrs = {number("alpha", 1)},
                                                     .sample_attrs = {{"alpha", 2.0}}})),
      with_scalar(map_row<numbers, 2, 2, scaled_sum<-1>>({.name = "sub",
                                                          .operands = "self, other",
                                                          .doc = "self - alpha * other",
                                                          .attrs = {number("alpha", 1)},
                                                          .sample_attrs = {{"alpha", 2.0}}})),
      with_scalar(map_row<numbers, 2, 2, reverse_difference>({.name = "rsub",
                                                              .operands = "self, other",
                                                              .doc = "other - alpha * self",
                                                              .attrs = {number("alpha", 1)},
                                                              .sample_attrs = {{"alpha", 2.0}}})),
      with_neutral(
          with_scalar(binary<all, 1, [](auto a, auto b) { return multiply_wrapping(a, b); }>(
              "mul", "self * other")),
          {{0, 1.0}, {1, 1.0}}),
      with_neutral(with_scalar(binary<floats, 4, [](float a, float b) { return a / b; }>(
                       "div", "self / other, in floating point", {{}, divisor})),
                   {{1, 1.0}}),
      map_row<numbers, 8, 2, divided>(
          {.name = "div_rounded",
           .operands = "self, other",
           .doc = "self / other rounded down (floor) or to zero (trunc)",
           .attrs = {maybe(text("rounding_mode"))},
           .aten = {{"div.Tensor_mode", "self, other | rounding_mode"},
                    {"div.Scalar_mode", "self, other | rounding_mode"}},
           .samples = division_samples(),
           .infer = infer_division}),
      spelled(binary<numbers, 8, [](auto a, auto b) { return divide_flooring(a, b); }>(
                  "floor_divide", "self / other rounded down", {{-20, 20}, divisor}),
              {{"floor_divide", "self, other"}, {"floor_divide.Scalar", "self, other"}}),
      with_scalar(binary<numbers, 8, [](auto a, auto b) { return remainder_truncating(a, b); }>(
          "fmod", "remainder with the sign of self", {{-20, 20}, divisor})),
      spelled(binary<numbers, 9, [](auto a, auto b) { return remainder_flooring(a, b); }>(
                  "remainder", "remainder with the sign of other", {{-20, 20}, divisor}),
              {{"remainder.Tensor", "self, other"},
               {"remainder.Scalar", "self, other"},
               {"remainder.Scalar_Tensor", "self, other"}}),
      map_row<numbers, 40, 2, without_attrs<[](auto a, auto b) { return power(a, b); }>>(
          {.name = "pow",
           .operands = "self, exponent",
           .doc = "self to the power of exponent",
           .domains = {positive, {0, 3}},
           .aten = {{"pow.Tensor_Tensor", "self, exponent"},
                    {"pow.Tensor_Scalar", "self, exponent"},
                    {"pow.Scalar", "self, exponent"}},
           .cpu = run_pow}),
      passing_on(spelled(binary<all, 1, [](auto a, auto b) { return maximum(a, b); }>(
                             "maximum", "the larger; NaN wins"),
                         {{"maximum", "self, other"}, {"clamp_min.Tensor", "self, min"}}),
                 {0, 1}),
      passing_on(spelled(binary<all, 1, [](auto a, auto b) { return minimum(a, b); }>(
                             "minimum", "the smaller; NaN wins"),
                         {{"minimum", "self, other"}, {"clamp_max.Tensor", "self, max"}}),
                 {0, 1}),
      binary<floats, 25, [](float a, float b) { return std::atan2(a, b); }>(
          "atan2", "angle of the point (other, self)"),
      binary<floats, 5, [](float a, float b) { return std::hypot(a, b); }>(
          "hypot", "length of the vector (self, other)"),
      spelled(
          binary<floats, 25,
                 [](float a, float b) { return is_nan(b) ? b
                                               : a == 0  ? 0.0F
                                                         : a * std::log(b); }>(
              "xlogy", "self * log(other), 0 where self is 0", {{}, positive}),
          {{"xlogy.Tensor", "self, other"},
           {"xlogy.Scalar_Self", "self, other"},
           {"xlogy.Scalar_Other", "self, other"}}),

      with_scalar(
          binary<all, 1, [](auto a, auto b) { return a == b; }, boolean>("eq", "self == other")),
      with_scalar(
          binary<all, 1, [](auto a, auto b) { return a != b; }, boolean>("ne", "self != other")),
      with_scalar(
          binary<all, 1, [](auto a, auto b) { return a < b; }, boolean>("lt", "self < other")),
      with_scalar(
          binary<all, 1, [](auto a, auto b) { return a <= b; }, boolean>("le", "self <= other")),
      with_scalar(
          binary<all, 1, [](auto a, auto b) { return (a > b); }, boolean>("gt", "self > other")),
      with_scalar(
          binary<all, 1, [](auto a, auto b) { return a >= b; }, boolean>("ge", "self >= other")),
      binary<all, 1, [](auto a, auto b) { return a && b; }, boolean>("logical_and",
                                                                     "neither is zero"),
      binary<all, 1, [](auto a, auto b) { return a || b; }, boolean>("logical_or",
                                                                     "one is not zero"),
      binary<all, 1, [](auto a, auto b) { return !a != !b; }, boolean>("logical_xor",
                                                                       "exactly one is zero"),
      bits(binary<integers, 1, [](auto a, auto b) -> decltype(a) { return a & b; }>(
          "bitwise_and", "bits set in both", {whole})),
      bits(binary<integers, 1, [](auto a, auto b) -> decltype(a) { return a | b; }>(
          "bitwise_or", "bits set in either", {whole})),
      bits(binary<integers, 1, [](auto a, auto b) -> decltype(a) { return a ^ b; }>(
          "bitwise_xor", "bits set in one", {whole})),

      map_row<numbers, 3, 3, plus_product>({.name = "addcmul",
                                            .operands = "self, tensor1, tensor2",
                                            .doc = "self + value * tensor1 * tensor2",
                                            .attrs = {number("value", 1)},
                                            .sample_attrs = {{"value", 3.0}}}),
      map_row<floats, 6, 3, plus_quotient>({.name = "addcdiv",
                                            .operands = "self, tensor1, tensor2",
                                            .doc = "self + value * tensor1 / tensor2",
                                            .attrs = {number("value", 1)},
                                            .domains = {{}, {}, divisor},
                                            .sample_attrs = {{"value", 0.3}}}),
      spelled(map_row<floats, 4, 3, without_attrs<interpolated>>(
                  {.name = "lerp",
                   .operands = "self, end, weight",
                   .doc = "the point between self (weight 0) and end (weight 1)"}),
              {{"lerp.Tensor", "self, end, weight"}, {"lerp.Scalar", "self, end, weight"}}),
  };

  rows.push_back({.name = "where",
                  .operands = "condition, self, other",
                  .results = "out",
                  .doc = "self where the condition holds, other elsewhere",
                  .aten = {{"where.self", "condition, self, other"},
                           {"where.ScalarSelf", "condition, self, other"},
                           {"where.ScalarOther", "condition, self, other"}},
                  .traits = {.promotion = Promotion::common,
                             .promote_from = 1,
                             .in_place = {{0, 1}, {0, 2}},
                             .passes_on = {1, 2}},
                  .infer = infer_where,
                  .cost = elementwise_cost<1>,
                  .cpu = run_where,
                  .samples = where_samples()});
  rows.push_back({.name = "masked_fill",
                  .operands = "self, mask, value",
                  .results = "out",
                  .doc = "the value where the mask holds, self elsewhere",
                  .aten = {{"masked_fill.Scalar", "self, mask, value"},
                           {"masked_fill.Tensor", "self, mask, value"}},
                  .traits = {.in_place = {{0, 0}}},
                  .infer = infer_masked_fill,
                  .cost = elementwise_cost<1>,
                  .cpu = run_masked_fill,
                  .samples = masked_fill_samples()});
  rows.push_back({.name = "cast",
                  .operands = "self",
                  .results = "out",
                  .doc = "the same values in another type; integers have no fractions, and a half "
                         "is the nearest, of two the even one",
                  .attrs = {maybe(data_type("dtype"))},
                  .aten = {{"_to_copy", "self | dtype"}},
                  .infer = infer_cast,
                  .cost = elementwise_cost<1>,
                  .cpu = run_cast,
                  .samples = cast_samples()});
  rows.push_back({.name = "clamp_between",
                  .operands = "self, min?, max?",
                  .results = "out",
                  .doc = "x brought between the elements of two tensors",
                  .kind = Kind::composite,
                  .aten = {{"clamp.Tensor", "self, min, max"}},
                  .traits = {.promotion = Promotion::common},
                  .infer = infer_map<Types::all, Result::same>,
                  .cost = elementwise_cost<2>,
                  .decompose = decompose_clamp,
                  .samples = clamp_between_samples()});
  return rows;
}

}  // namespace

std::span<const OpDef> elementwise() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera::families
