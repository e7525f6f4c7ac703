// Random numbers. Element e takes word e % 4 of counter e / 4 of the stream that seed, step and the
// node's key name, so that neither threads nor recomputation change it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "tessera/base/half.h"
#include "tessera/base/rng.h"
#include "tessera/kernels/dispatch.h"
#include "tessera/kernels/elementwise.h"
#include "tessera/kernels/operand_reader.h"
#include "tessera/ops/families.h"
#include "tessera/ops/row_parts.h"
#include "tessera/ops/rows.h"

namespace tessera::families {
namespace {

using namespace row_parts;

using Words = std::array<uint32_t, 4>;

// out[e] = draw(words of e's counter, e % 4, e) for every element.
template <typename Out, typename Draw>
void fill(const KernelCall& call, const Draw& draw) {
  static_assert(elementwise_grain % 4 == 0, "a counter's words must not be split between pieces");
  const auto key = static_cast<uint64_t>(call.attrs.integer("key"));
  auto* out = call.outputs[0].as<Out>();
  call.pool.run_ranges(call.outputs[0].numel(), elementwise_grain, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += 4) {
      const Words words = random_words(call.rng, key, static_cast<uint64_t>(first / 4));
      for (int64_t e = first; e < std::min(first + 4, end); ++e) {
        const auto drawn = draw(words, static_cast<size_t>(e % 4), e);
        if constexpr (std::is_same_v<Out, Half>) {
          out[e] = to_half(static_cast<float>(drawn));
        } else {
          out[e] = static_cast<Out>(drawn);
        }
      }
    }
  });
}

void run_bernoulli(const KernelCall& call) {
  const auto p = static_cast<float>(call.attrs.number("p"));
  dispatch<Types::all>(call.outputs[0].dtype, [&]<typename T>() {
    fill<T>(call,
            [p](const Words& words, size_t i, int64_t) { return uniform_from_word(words[i]) < p; });
  });
}

void run_bernoulli_tensor(const KernelCall& call) {
  const OperandReader probabilities(call.inputs[1], call.outputs[0].sizes);
  dispatch<Types::all>(call.outputs[0].dtype, [&]<typename T>() {
    fill<T>(call, [&](const Words& words, size_t i, int64_t e) {
      std::byte scratch[sizeof(float)];
      const auto* p = probabilities.read_as<float>(e, 1, scratch);
      check(*p >= 0 && *p <= 1, "bernoulli expects p to be in [0, 1], but got p={}", *p);
      return uniform_from_word(words[i]) < *p;
    });
  });
}

// The largest half below `end`, and below the half that stands for `end` elsewhere in a program.
float last_half_below(float end) { return to_float(next_below(to_half(end))); }

void run_uniform(const KernelCall& call) {
  const auto from = static_cast<float>(call.attrs.number("from"));
  const auto to = static_cast<float>(call.attrs.number("to"));
  const bool half = call.outputs[0].dtype == DType::f16;
  // Rounding must not reach the open end of the range.
  const float below = half ? last_half_below(to) : std::nextafter(to, from);
  const float last = from < to ? below : from;
  const auto draw = [=](const Words& words, size_t i, int64_t) {
    return std::min(from + (to - from) * uniform_from_word(words[i]), last);
  };
  if (half) return fill<Half>(call, draw);
  fill<float>(call, draw);
}

// Two words make two normal numbers (Box and Muller).
void run_normal(const KernelCall& call) {
  const auto mean = static_cast<float>(call.attrs.number("mean"));
  const auto deviation = static_cast<float>(call.attrs.number("std"));
  fill<float>(call, [=](const Words& words, size_t i, int64_t) {
    const size_t pair = i & ~size_t{1};
    const float radius = std::sqrt(-2 * std::log(1 - uniform_from_word(words[pair])));
    const float angle = 2 * std::numbers::pi_v<float> * uniform_from_word(words[pair + 1]);
    return mean + deviation * radius * (i == pair ? std::cos(angle) : std::sin(angle));
  });
}

void run_exponential(const KernelCall& call) {
  const auto rate = static_cast<float>(call.attrs.number("lambd"));
  fill<float>(call, [rate](const Words& words, size_t i, int64_t) {
    return -std::log(1 - uniform_from_word(words[i])) / rate;
  });
}

// One past the largest number drawn where no bound is given: all that a type can count exactly.
int64_t end_of(DType dtype) {
  switch (dtype) {
    case DType::i32:
      return int64_t{1} << 31;
    case DType::i16:
      return 1 << 15;
    case DType::i8:
      return 1 << 7;
    case DType::u8:
      return 1 << 8;
    case DType::boolean:
      return 2;
    case DType::f16:
      return (1 << 11) + 1;
    default:
      return (1 << 24) + 1;
  }
}

void run_integers(const KernelCall& call) {
  const DType dtype = call.outputs[0].dtype;
  const int64_t low = call.attrs.integer("low");
  const int64_t high = call.attrs.has("high") ? call.attrs.integer("high") : end_of(dtype);
  const auto range = static_cast<uint64_t>(high - low);
  const auto draw = [=](const Words& words, size_t i, int64_t) {
    return low + static_cast<int64_t>(words[i] * range >> 32);
  };
  if (dtype == DType::f16) return fill<Half>(call, draw);
  dispatch<Types::all>(dtype, [&]<typename T>() { fill<T>(call, draw); });
}

// --- types ---

std::vector<TensorType> infer_like(const OpView& op) {
  const DType dtype = op.attrs().has("dtype") ? op.attrs().dtype("dtype") : op.type(0).dtype;
  return {{dtype, op.shape(0)}};
}

std::vector<TensorType> checked_floating(std::vector<TensorType> types) {
  check(is_floating(types[0].dtype), ErrorKind::type,
        "this distribution needs floating point, not {}", name_of(types[0].dtype));
  return types;
}

// What a distribution's numbers may be, in PyTorch's words.
void check_parameters(const Attrs& attrs) {
  if (attrs.has("std")) {
    check(attrs.number("std") >= 0, ErrorKind::value, "normal expects std >= 0.0, but found std {}",
          attrs.number("std"));
  }
  if (attrs.has("lambd")) {
    check(attrs.number("lambd") > 0, ErrorKind::value,
          "exponential_ expects lambda > 0.0, but found lambda={}", attrs.number("lambd"));
  }
  if (attrs.has("from") && attrs.has("to")) {
    check(attrs.number("from") <= attrs.number("to"), ErrorKind::value,
          "uniform_ expects to return a [from, to) range, but found from={} > to={}",
          attrs.number("from"), attrs.number("to"));
  }
}

std::vector<TensorType> infer_floating_like(const OpView& op) {
  check_parameters(op.attrs());
  return checked_floating(infer_like(op));
}

std::vector<TensorType> infer_bernoulli(const OpView& op) {
  const double p = op.attrs().number("p");
  check(p >= 0 && p <= 1, ErrorKind::value, "bernoulli expects p to be in [0, 1], but got p={}", p);
  return infer_like(op);
}

std::vector<TensorType> infer_bernoulli_tensor(const OpView& op) {
  check(is_floating(op.type(1).dtype), ErrorKind::type,
        "probabilities must be floating point, not {}", name_of(op.type(1).dtype));
  check(broadcast(op.shape(0), op.shape(1)) == op.shape(0), ErrorKind::value,
        "probabilities of shape {} do not broadcast to {}", to_string(op.shape(1)),
        to_string(op.shape(0)));
  return {op.type(0)};
}

DType type_or(const OpView& op, DType otherwise) {
  return op.attrs().has("dtype") ? op.attrs().dtype("dtype") : otherwise;
}

std::vector<TensorType> infer_floating_shape(const OpView& op) {
  check_parameters(op.attrs());
  return checked_floating({{type_or(op, DType::f32), op.attrs().integers("size")}});
}

void check_range(const OpView& op, DType dtype) {
  const int64_t low = op.attrs().integer("low");
  const int64_t high =
      op.attrs().has("high") ? op.attrs().integer("high") : end_of(narrowed(dtype));
  int64_t range = 0;
  check(low < high && !__builtin_sub_overflow(high, low, &range) && range <= int64_t{1} << 32,
        ErrorKind::value,
        "there is no range of up to 2^32 integers from {} up to but not including {}", low, high);
  constexpr int64_t lowest = std::numeric_limits<int32_t>::min();
  check(is_floating(dtype) || (low >= lowest && high <= -lowest), ErrorKind::value,
        "integers from {} up to but not including {} do not fit into 32 bits", low, high);
}

std::vector<TensorType> infer_integers_like(const OpView& op) {
  const auto types = infer_like(op);
  check_range(op, types[0].dtype);
  return types;
}

std::vector<TensorType> infer_integers_shape(const OpView& op) {
  const DType dtype = type_or(op, DType::i64);
  check_range(op, dtype);
  return {{dtype, op.attrs().integers("size")}};
}

// --- rows ---

struct RandomRow {
  std::string name, operands, doc;
  AttrSchema attrs;
  std::vector<AtenSpelling> aten;
  decltype(OpDef::infer) infer;
  decltype(OpDef::cpu) cpu;
  std::vector<Sample> samples;
};

OpDef random_row(RandomRow row) {
  OpDef def{.name = std::move(row.name),
            .operands = std::move(row.operands),
            .results = "out",
            .doc = std::move(row.doc),
            .kind = Kind::random,
            .attrs = std::move(row.attrs),
            .aten = std::move(row.aten),
            .traits = {.reads_random_state = true},
            .infer = row.infer,
            .cost = rows::elementwise_cost<15>,
            .cpu = row.cpu,
            .samples = std::move(row.samples)};
  def.attrs.push_back(large(integer("key", 0)));
  return def;
}

OpDef rounding_to_halves(OpDef def) {
  def.traits.rounds_to_halves = true;
  return def;
}

std::vector<Sample> like_samples() {
  return {{{reals({3, 5})}}, {{reals({})}}, {{reals({17, 1003})}, {{"key", attr(77)}}}};
}

std::vector<Sample> with_halves(std::vector<Sample> samples) {
  samples.push_back({{sample(DType::f16, {1003})}});
  return samples;
}

std::vector<Sample> with_integers(std::vector<Sample> samples) {
  for (const DType dtype : {DType::i32, DType::i16, DType::i8, DType::u8, DType::boolean}) {
    samples.push_back({{sample(dtype, {11})}});
  }
  return samples;
}

std::vector<Sample> shape_samples(const Attrs& extra) {
  std::vector<Sample> samples;
  for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{17, 1003}}) {
    Attrs attrs = extra;
    attrs.set("size", shape);
    samples.push_back({{}, std::move(attrs)});
  }
  return samples;
}

std::vector<OpDef> make_rows() {
  const AttrSpec size = large(ints("size"));
  const AttrSpec dtype = maybe(data_type("dtype"));
  const AttrSpec low = large(integer("low", 0));
  const AttrSpec high = maybe(large(integer("high")));
  const AttrSpec mean = number("mean", 0);
  const AttrSpec deviation = number("std", 1);
  const AttrSpec from = number("from", 0);
  const AttrSpec to = number("to", 1);
  return {
      random_row({"bernoulli",
                  "self",
                  "1 with probability p, else 0; shaped like self",
                  {number("p", 0.5)},
                  {{"bernoulli.p", "self | p"}, {"bernoulli_.float", "self | p"}},
                  infer_bernoulli,
                  run_bernoulli,
                  with_integers(like_samples())}),
      random_row({"bernoulli_tensor",
                  "self, p",
                  "1 with the element's probability p, else 0",
                  {},
                  {{"bernoulli", "self, self"},
                   {"bernoulli.Tensor", "self, p"},
                   {"bernoulli_.Tensor", "self, p"}},
                  infer_bernoulli_tensor,
                  run_bernoulli_tensor,
                  {{{reals({3, 5}), reals({5}, {0, 1})}},
                   {{integers({17, 1003}), reals({17, 1003}, {0, 1})}}}}),
      rounding_to_halves(random_row({"uniform",
                                     "self",
                                     "uniform in [from, to), shaped like self",
                                     {from, to, dtype},
                                     {{"uniform_", "self | from, to"},
                                      {"uniform", "self | from, to"},
                                      {"rand_like", "self | dtype"}},
                                     infer_floating_like,
                                     run_uniform,
                                     with_halves(like_samples())})),
      random_row({"normal",
                  "self",
                  "normal with a mean and a deviation, shaped like self",
                  {mean, deviation, dtype},
                  {{"normal_", "self | mean, std"}, {"randn_like", "self | dtype"}},
                  infer_floating_like,
                  run_normal,
                  like_samples()}),
      random_row({"exponential",
                  "self",
                  "exponential with rate lambd, shaped like self",
                  {number("lambd", 1)},
                  {{"exponential_", "self | lambd"}, {"exponential", "self | lambd"}},
                  infer_floating_like,
                  run_exponential,
                  like_samples()}),
      rounding_to_halves(random_row({"random",
                                     "self",
                                     "integers from low up to but not including high, like self",
                                     {low, high, dtype},
                                     {{"random_.from", "self | low=from, high=to"},
                                      {"random_.to", "self | high=to"},
                                      {"random_", "self"},
                                      {"randint_like", "self | high, dtype"},
                                      {"randint_like.low_dtype", "self | low, high, dtype"}},
                                     infer_integers_like,
                                     run_integers,
                                     with_halves(with_integers(like_samples()))})),
      rounding_to_halves(
          random_row({"rand",
                      "",
                      "uniform in [0, 1)",
                      {size, dtype, from, to},
                      {{"rand", "| size, dtype"}, {"rand.generator", "| size, dtype"}},
                      infer_floating_shape,
                      run_uniform,
                      shape_samples({})})),
      random_row({"randn",
                  "",
                  "normal with a mean and a deviation",
                  {size, dtype, mean, deviation},
                  {{"randn", "| size, dtype"},
                   {"randn.generator", "| size, dtype"},
                   {"normal.float_float", "| mean, std, size, dtype"}},
                  infer_floating_shape,
                  run_normal,
                  shape_samples({})}),
      rounding_to_halves(random_row({"randint",
                                     "",
                                     "integers from low up to but not including high",
                                     {low, high, size, dtype},
                                     {{"randint", "| high, size, dtype"},
                                      {"randint.generator", "| high, size, dtype"},
                                      {"randint.low", "| low, high, size, dtype"},
                                      {"randint.low_generator", "| low, high, size, dtype"}},
                                     infer_integers_shape,
                                     run_integers,
                                     shape_samples({{"low", attr(-3)}, {"high", attr(9)}})})),
  };
}

}  // namespace

std::span<const OpDef> random() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera::families
