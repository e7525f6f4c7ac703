#include "tessera/backend/cpu/referee.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tessera/backend/cpu/value_path.h"
#include "tessera/base/error.h"
#include "tessera/kernels/copy.h"
#include "tessera/ops/contraction_map.h"
#include "tessera/ops/fused_body.h"
#include "tessera/ops/of_halves.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/run_reference.h"

namespace tessera::cpu {
namespace {

using Bytes = std::vector<std::byte>;

// Operands of the reference kernel are moved by about sixteen units in the last place, and a result
// may be off by forty times what that does to any of its elements: a fast convolution rounds some
// hundred times more than a sum in double precision, and a wrong one is further off than that.
constexpr float relative_move = 1e-6F;
constexpr double allowed_moves = 40;
constexpr double always_allowed = 2e-6;  // of the element: functions are right to a few units
constexpr double least_allowed = 2e-7;   // in sums of numbers around one, which cancel
constexpr int moved_runs = 4;
// What is rounded to a half after it was off by little may be the half beside the right one. The
// result may be off by some times what it does to its elements when all such numbers move by a unit
// in the last place of a half.
constexpr float half_move = 0x1p-10F;
constexpr double allowed_half_moves = 4;

// The place's elements row by row in the value's logical order: groups stand beside what they were
// cut from.
Geometry in_logical_order(const Place& place) {
  const Geometry& physical = place.geometry;
  const auto& cut = place.layout.cut;
  const size_t rank = physical.shape.size() - cut.size();
  Geometry ordered;
  for (size_t dim = 0; dim < rank; ++dim) {
    ordered.shape.push_back(physical.shape[dim]);
    ordered.strides.push_back(physical.strides[dim]);
    const auto at = std::find(cut.begin(), cut.end(), static_cast<int>(dim));
    if (at == cut.end()) continue;
    const size_t within = rank + static_cast<size_t>(at - cut.begin());
    ordered.shape.push_back(physical.shape[within]);
    ordered.strides.push_back(physical.strides[within]);
  }
  return ordered;
}

Bytes dense_copy(std::byte* data, DType dtype, const Geometry& geometry, ThreadPool& pool) {
  Bytes out(static_cast<size_t>(bytes({dtype, geometry.shape})));
  const Strides strides = contiguous_strides(geometry.shape);
  if (!out.empty()) {
    kernels::copy({data, dtype, geometry.shape, geometry.strides},
                  {out.data(), dtype, geometry.shape, strides}, pool);
  }
  return out;
}

bool can_be_broadcast(const Shape& shape, const Shape& shown) {
  if (shape.size() > shown.size()) return false;
  return std::equal(shape.rbegin(), shape.rend(), shown.rbegin(),
                    [](int64_t own, int64_t wide) { return own == 1 || own == wide; });
}

// A dense value of `shape`, broadcast to `shown`.
Bytes broadcast(const Bytes& value, DType dtype, const Shape& shape, const Shape& shown,
                ThreadPool& pool) {
  Geometry geometry{shown, Strides(shown.size(), 0)};
  const Strides strides = contiguous_strides(shape);
  for (size_t back = 1; back <= shape.size(); ++back) {
    if (shape[shape.size() - back] == 1) continue;
    geometry.strides[shown.size() - back] = strides[shape.size() - back];
  }
  return dense_copy(const_cast<std::byte*>(value.data()), dtype, geometry, pool);
}

bool overlap(const TensorView& a, const TensorView& b) {
  if (!a.present || !b.present || !a.data || !b.data) return false;
  const auto end = [](const TensorView& view) {
    int64_t last = 0;
    for (size_t i = 0; i < view.sizes.size(); ++i) last += (view.sizes[i] - 1) * view.strides[i];
    return view.data + (last + 1) * static_cast<int64_t>(size_of(view.dtype));
  };
  return a.data < end(b) && b.data < end(a);
}

double number_at(const Bytes& values, DType dtype, size_t index) {
  switch (dtype) {
    case DType::f32: {
      float value = 0;
      std::memcpy(&value, &values[index * sizeof value], sizeof value);
      return value;
    }
    case DType::f16: {
      Half value;
      std::memcpy(&value, &values[index * sizeof value], sizeof value);
      return to_float(value);
    }
    case DType::i32: {
      int32_t value = 0;
      std::memcpy(&value, &values[index * sizeof value], sizeof value);
      return value;
    }
    case DType::i16: {
      int16_t value = 0;
      std::memcpy(&value, &values[index * sizeof value], sizeof value);
      return value;
    }
    case DType::i8:
      return static_cast<double>(static_cast<int8_t>(values[index]));
    default:
      return static_cast<double>(std::to_integer<uint8_t>(values[index]));
  }
}

double largest(const Bytes& floats, DType dtype) {
  double found = 0;
  for (size_t i = 0; i < floats.size() / size_of(dtype); ++i) {
    found = std::max(found, std::fabs(number_at(floats, dtype, i)));
  }
  return found;
}

bool all_finite(const Bytes& floats, DType dtype) {
  for (size_t i = 0; i < floats.size() / size_of(dtype); ++i) {
    if (!std::isfinite(number_at(floats, dtype, i))) return false;
  }
  return true;
}

bool differ(double a, double b, double allowed) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) != std::isnan(b);
  if (a == b) return false;
  return !(std::fabs(a - b) <= allowed);
}

void move(Bytes& values, uint64_t key) {
  auto* numbers = reinterpret_cast<float*>(values.data());
  for (size_t i = 0; i < values.size() / sizeof(float); ++i) {
    const float uniform = uniform_from_word(random_words({}, key, i)[0]);
    numbers[i] *= 1 + relative_move * (2 * uniform - 1);
  }
}

// Whether an operand is halves that a row computes with: what it makes of them rounds as f32 does.
bool is_widened(const Node& node, size_t operand, const TensorType& type) {
  if (type.dtype != DType::f16) return false;
  const OpDef* contraction = contraction_of_map(op(node));
  return row_in_single(op(node)) || (contraction && operand < operand_count(*contraction));
}

Bytes widened(const Bytes& halves) {
  Bytes floats(2 * halves.size());
  const size_t count = halves.size() / sizeof(Half);
  widen({reinterpret_cast<const Half*>(halves.data()), count},
        {reinterpret_cast<float*>(floats.data()), count});
  return floats;
}

// A number around one, by at most so much.
double random_factor(uint64_t key, uint64_t index, float move) {
  return 1 + double{move} * (2 * uniform_from_word(random_words({}, key, index)[0]) - 1);
}

bool makes_halves(const BodyStep& step) { return step.dtype == DType::f16; }

bool rounds_to_half(const FusedBody& body) {
  return std::any_of(body.steps.begin(), body.steps.end(), makes_halves);
}

// A fused body whose steps round too: what every step makes of floats is moved as operands are; or
// only what is rounded to halves, by as much as that rounding does.
FusedBody with_moved_steps(const FusedBody& body, uint64_t key, bool halves) {
  FusedBody moved;
  std::vector<size_t> where;  // by old step
  const auto in_moved = [&](BodyValue value) {
    if (value.from == BodyValue::From::step) value.index = where[value.index];
    return value;
  };
  const auto widened = [&](const BodyStep& step) {  // of a half that was made here
    const BodyValue& from = step.arguments[0];
    return step.op == "cast" && from.from == BodyValue::From::step &&
           makes_halves(body.steps[from.index]);
  };
  for (const BodyStep& step : body.steps) {
    BodyStep& copy = moved.steps.emplace_back(step);
    for (BodyValue& argument : copy.arguments) argument = in_moved(argument);
    where.push_back(moved.steps.size() - 1);
    if (step.dtype != DType::f32 || (halves && !widened(step))) continue;
    const BodyValue factor{
        .from = BodyValue::From::number,
        .number = random_factor(key, where.size(), halves ? half_move : relative_move)};
    moved.steps.push_back({"mul", {{BodyValue::From::step, where.back()}, factor}});
    ++where.back();
  }
  for (const BodyResult& result : body.results) {
    moved.results.push_back(result);
    moved.results.back().value = in_moved(result.value);
  }
  return completed(std::move(moved));
}

std::string index_text(const Shape& shape, int64_t number) {
  Shape index(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    index[dim] = number % shape[dim];
    number /= shape[dim];
  }
  return to_string(index);
}

std::string described(const Call& call, size_t number) {
  return fmt::format("call {}, {} by {}{}{}", number, call.op, call.kernel,
                     call.origin.empty() ? "" : " of ", call.origin);
}

}  // namespace

Referee::Referee(const Plan& plan)
    : plan_(plan),
      graph_(*plan.graph),
      values_(static_cast<size_t>(graph_.value_count())),
      dying_(plan.calls.size()) {
  std::vector<int64_t> last(values_.size(), -1);
  const auto use = [&](ValueId id, int64_t call) {
    for (; id.valid(); id = graph_.producer(id)->operands[0]) {
      int64_t& at = last[static_cast<size_t>(id.index)];
      at = std::max(at, call);
      const Node* node = graph_.producer(id);
      if (!node || op(*node).kind != Kind::view) break;
    }
  };
  const auto end = static_cast<int64_t>(plan.calls.size());
  for (int64_t i = 0; i < end; ++i) {
    for (const Place& place : plan.calls[static_cast<size_t>(i)].inputs) use(place.value, i);
    for (const Place& place : plan.calls[static_cast<size_t>(i)].outputs) use(place.value, i);
  }
  for (const Output& output : graph_.outputs()) use(output.value, end);
  for (const State& state : graph_.states()) {
    use(state.after_micro_batch, end);
    use(state.after_update, end);
  }
  for (size_t i = 0; i < last.size(); ++i) {
    if (last[i] < 0 || last[i] >= end) continue;
    dying_[static_cast<size_t>(last[i])].push_back({static_cast<int32_t>(i)});
  }
}

void Referee::begin_micro_batch() {
  for (Bytes& value : values_) value = {};
}

void Referee::take_state(size_t state, const TensorView& seen, ThreadPool& pool) {
  const Place& place = plan_.states[state];
  if (seen.numel() > 0) {
    kept(place.value) = dense_copy(seen.data, place.dtype, place.geometry, pool);
  }
}

// A view is made when it is asked for.
const Bytes& Referee::value(ValueId id, ThreadPool& pool) {
  Bytes& known = kept(id);
  const TensorType& type = graph_.type(id);
  const Node* node = graph_.producer(id);
  if (!known.empty() || !node || op(*node).kind != Kind::view) return known;
  const Geometry view{node->attrs.integers("shape"), node->attrs.integers("strides"),
                      node->attrs.integer("offset")};
  const Bytes& base = value(node->operands[0], pool);
  if (base.empty()) return known;
  auto* start =
      const_cast<std::byte*>(base.data()) + view.offset * static_cast<int64_t>(size_of(type.dtype));
  return known = dense_copy(start, type.dtype, view, pool);
}

// Inputs and constants: what is there when it is first read is what it is.
void Referee::adopt(const Place& place, const TensorView& view, ThreadPool& pool) {
  const ValueId base = root_of(graph_, place.value);
  const Node* node = graph_.producer(base);
  if (!kept(base).empty() || (node && op(*node).kind != Kind::source)) return;
  const auto size = static_cast<int64_t>(size_of(place.dtype));
  std::byte* start = view.data - place.geometry.offset * size;
  const TensorType& type = graph_.type(base);
  kept(base) = dense_copy(start, type.dtype, dense(type.shape), pool);
}

void Referee::before(size_t number, std::span<const TensorView> operands,
                     std::span<const TensorView> results, ThreadPool& pool) {
  const Call& call = plan_.calls[number];
  for (size_t i = 0; i < operands.size(); ++i) {
    const Place& place = call.inputs[i];
    if (!place.buffer.valid() || operands[i].numel() == 0) continue;
    adopt(place, operands[i], pool);
    const Shape& shape = graph_.type(place.value).shape;
    const Bytes seen = dense_copy(operands[i].data, place.dtype, in_logical_order(place), pool);
    const Shape shown = shown_shape(place, shape);
    const Bytes& written = value(place.value, pool);
    const bool same = shown == shape
                          ? seen == written
                          : can_be_broadcast(shape, shown) &&
                                seen == broadcast(written, place.dtype, shape, shown, pool);
    check(same, ErrorKind::runtime,
          "TESSERA_CHECK: {}: operand {} (%{}) is not what was written as that value",
          described(call, number), i, place.value.index);
  }
  for (const TensorView& result : results) {
    const auto in_place = [&](const TensorView& operand) { return overlap(operand, result); };
    if (std::any_of(operands.begin(), operands.end(), in_place)) continue;
    std::memset(result.data, 0xff, static_cast<size_t>(result.numel()) * size_of(result.dtype));
  }
}

std::vector<Bytes> Referee::reference(const Node& node, Moved moved, uint64_t key, ThreadPool& pool,
                                      RngState rng) {
  std::vector<Bytes> memory;
  std::vector<Strides> strides;
  std::vector<TensorView> inputs, outputs;
  const size_t count = node.operands.size() + node.results.size();
  memory.reserve(count);
  strides.reserve(count);
  const auto view_of = [&](const TensorType& type) -> TensorView {
    strides.push_back(contiguous_strides(type.shape));
    return {memory.back().data(), type.dtype, type.shape, strides.back()};
  };
  for (const ValueId id : node.operands) {
    if (!id.valid()) {
      inputs.push_back({nullptr, DType::f32, {}, {}, false});
      continue;
    }
    memory.push_back(value(id, pool));
    const TensorType& type = graph_.type(id);
    const bool wide = moved == Moved::all && is_widened(node, inputs.size(), type);
    if (wide) memory.back() = widened(memory.back());
    if (moved == Moved::all && (wide || type.dtype == DType::f32)) {
      move(memory.back(), key + inputs.size());
    }
    inputs.push_back(view_of(type));
    if (wide) inputs.back().dtype = DType::f32;
  }
  const size_t first = memory.size();
  for (const ValueId id : node.results) {
    memory.emplace_back(static_cast<size_t>(bytes(graph_.type(id))));
    outputs.push_back(view_of(graph_.type(id)));
  }
  Attrs attrs = node.attrs;
  if (moved != Moved::nothing && attrs.has("body")) {
    attrs.set("body", body_attr(with_moved_steps(attrs.body("body"), key, moved == Moved::halves)));
  }
  run_reference(op(node),
                {.inputs = inputs, .outputs = outputs, .attrs = attrs, .pool = pool, .rng = rng});
  return {std::make_move_iterator(memory.begin() + static_cast<std::ptrdiff_t>(first)),
          std::make_move_iterator(memory.end())};
}

void Referee::after(size_t number, std::span<const TensorView> results, ThreadPool& pool,
                    RngState rng) {
  const Call& call = plan_.calls[number];
  std::vector<Bytes> got;
  for (size_t i = 0; i < results.size(); ++i) {
    got.push_back(
        dense_copy(results[i].data, results[i].dtype, in_logical_order(call.outputs[i]), pool));
  }
  if (!call.node.valid()) {
    check(got[0] == value(call.inputs[0].value, pool), ErrorKind::runtime,
          "TESSERA_CHECK: {}: the copy of %{} is not what it was copied from",
          described(call, number), call.inputs[0].value.index);
  } else if (const Node& node = graph_.node(call.node);
             op(node).kind != Kind::host && op(node).kind != Kind::collective) {
    const std::vector<Bytes> wanted = reference(node, Moved::nothing, 0, pool, rng);
    std::vector<std::vector<Bytes>> moved, halves_moved;
    if (got != wanted) {
      const bool halves = node.attrs.has("body") && rounds_to_half(node.attrs.body("body"));
      for (uint64_t run = 1; run <= moved_runs; ++run) {
        moved.push_back(reference(node, Moved::all, run * 100, pool, rng));
        if (halves) halves_moved.push_back(reference(node, Moved::halves, run * 100, pool, rng));
      }
      for (size_t i = 0; i < got.size(); ++i) {
        compare(call, number, i, got[i], wanted[i], moved, halves_moved);
      }
    }
  }
  for (size_t i = 0; i < results.size(); ++i) kept(call.outputs[i].value) = std::move(got[i]);
  for (const ValueId id : dying_[number]) kept(id) = {};
}

void Referee::compare(const Call& call, size_t number, size_t result, const Bytes& got,
                      const Bytes& wanted, std::span<const std::vector<Bytes>> moved,
                      std::span<const std::vector<Bytes>> halves_moved) {
  const TensorType& type = graph_.type(call.outputs[result].value);
  const auto count = static_cast<size_t>(numel(type.shape));
  double least = 0;
  bool finite_operands = true;
  for (const Place& place : call.inputs) {
    if (place.buffer.valid() && is_floating(place.dtype)) {
      const Bytes& values = kept(place.value);
      least = std::max(least, least_allowed * std::min(1.0, largest(values, place.dtype)));
      finite_operands = finite_operands && all_finite(values, place.dtype);
    }
  }
  // Whether a product with padding is made, or a tile is transformed as a whole, is a kernel's own
  // affair; a zero times what is not finite shows the difference.
  const bool sums_products = op(graph_.node(call.node)).kind == Kind::contraction;
  const bool half = type.dtype == DType::f16;
  // Beyond `own(element)`.
  const auto furthest = [&](std::span<const std::vector<Bytes>> runs, const auto& own) {
    double most = 0;
    for (size_t i = 0; i < count; ++i) {
      const double right = number_at(wanted, type.dtype, i);
      for (const auto& run : runs) {
        const double distance = std::fabs(number_at(run[result], type.dtype, i) - right);
        if (std::isfinite(distance)) most = std::max(most, distance - own(right));
      }
    }
    return most;
  };
  const double by_halves = furthest(halves_moved, [](double) { return 0.0; });
  // Of what moves do, so much is a rounding to a half that turns out otherwise.
  const auto turned = [&](double right) {
    return 2 * std::max(by_halves, half ? half_move * std::fabs(right) + 0x1p-24 : 0);
  };
  // What a fast kernel's sums are off by may be less than such a rounding in the moved ones, too,
  // and does not show there.
  const double half_roundings = sums_products ? 3 : 1;
  const double by_moves = allowed_moves * furthest(moved, turned) + allowed_half_moves * by_halves;
  for (size_t i = 0; i < count; ++i) {
    const double right = number_at(wanted, type.dtype, i), found = number_at(got, type.dtype, i);
    double rounding = is_floating(type.dtype) ? least : 0;
    if (half) rounding += half_roundings * (half_move * std::fabs(right) + 0x1p-24);
    const double allowed = by_moves + always_allowed * std::fabs(right) + rounding;
    if (!differ(found, right, allowed)) continue;
    const int finite = int{std::isfinite(found)} + int{std::isfinite(right)};
    // Of sums that overflow, the order decides whether they are infinite or no number at all.
    if (sums_products && (finite == 0 || (finite == 1 && !finite_operands))) continue;
    // At a pole, or where it overflows, the smallest move changes everything.
    const auto jumps = [&](const std::vector<Bytes>& run) {
      return differ(number_at(run[result], type.dtype, i), right, allowed);
    };
    if (std::any_of(moved.begin(), moved.end(), jumps)) continue;
    if (std::any_of(halves_moved.begin(), halves_moved.end(), jumps)) continue;
    fail(ErrorKind::runtime,
         "TESSERA_CHECK: {}: result {} (%{}, {}) has {} at {}, the reference kernel {}; rounding "
         "explains {:.3g}. Please report this. TESSERA_DISABLE_KERNELS={} does without the kernel",
         described(call, number), result, call.outputs[result].value.index, to_string(type), found,
         index_text(type.shape, static_cast<int64_t>(i)), right, allowed, call.kernel);
  }
}

void Referee::check_output(size_t output, const TensorView& seen, ThreadPool& pool) {
  const Place& place = plan_.outputs[output];
  if (seen.numel() == 0) return;
  adopt(place, seen, pool);
  check(dense_copy(seen.data, place.dtype, place.geometry, pool) == value(place.value, pool),
        ErrorKind::runtime, "TESSERA_CHECK: output '{}' is not what was computed for it",
        graph_.outputs()[output].name);
}

void Referee::check_state(size_t state, Phase phase, const TensorView& seen, ThreadPool& pool) {
  const State& wanted = graph_.states()[state];
  const Place& place = plan_.states[state];
  if (seen.numel() == 0) return;
  const ValueId after =
      phase == Phase::micro_batch ? wanted.after_micro_batch : wanted.after_update;
  check(dense_copy(seen.data, place.dtype, place.geometry, pool) == value(after, pool),
        ErrorKind::runtime, "TESSERA_CHECK: state '{}' is not what was computed for it after {}",
        wanted.name, phase == Phase::micro_batch ? "a micro-batch" : "an update");
}

}  // namespace tessera::cpu
