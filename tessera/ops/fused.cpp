// Chains of element-wise operators as one, and the sums they end in. The CPU's lowering makes them;
// the kernels here run the rows that the body names, a piece of the shape at a time, and so give
// the same bits as the operators one after the other.
#include <algorithm>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/ops/families.h"
#include "tessera/ops/fused_body.h"
#include "tessera/ops/row_parts.h"

namespace tessera::families {
namespace {

using namespace row_parts;

constexpr int64_t piece_elements = 4096;  // all values of a piece stay in the cache

std::vector<TensorType> operand_types(const OpView& op) {
  std::vector<TensorType> types;
  for (size_t i = 0; i < op.count(); ++i) {
    check(op.has(i), ErrorKind::value, "a fused operator needs all of its operands");
    types.push_back(op.type(i));
  }
  return types;
}

std::vector<TensorType> infer_fused(const OpView& op) {
  return result_types(parse_body(op.attrs().text("body")), operand_types(op));
}

std::vector<TensorType> infer_map(const OpView& op) {
  const Body body = parse_body(op.attrs().text("body"));
  check(std::none_of(body.results.begin(), body.results.end(),
                     [](const BodyResult& result) { return result.summed; }),
        ErrorKind::value, "map has no sums; map_reduce has");
  return result_types(body, operand_types(op));
}

// The price of the steps; a sum costs one more for each element.
Cost fused_cost(const OpView& op, std::span<const TensorType>) {
  const Body body = parse_body(op.attrs().text("body"));
  const auto operands = operand_types(op);
  Shape shape;
  for (const TensorType& operand : operands) shape = broadcast(shape, operand.shape);
  double flops = 0;
  for (const BodyStep& step : body.steps) flops += flops_per_element(step);
  for (const BodyResult& result : body.results) flops += result.summed ? 1 : 0;
  return ElementwiseCost{numel(shape), flops};
}

// A range of the row-major order of a shape that is a box: one index of each outer dimension, some
// of one, all of the inner ones.
struct Piece {
  std::vector<int64_t> begin;
  Shape shape;
  int64_t first = 0;  // in the row-major order
};

class Pieces {
 public:
  explicit Pieces(const Shape& shape) : shape_(shape) {
    inner_ = 1;
    dim_ = shape.size();
    while (dim_ > 0 && inner_ * shape[dim_ - 1] <= piece_elements) inner_ *= shape[--dim_];
    if (dim_ > 0) {
      --dim_;
      step_ = std::max<int64_t>(1, piece_elements / inner_);
      cuts_ = (shape[dim_] + step_ - 1) / step_;
      for (size_t i = 0; i < dim_; ++i) outer_ *= shape[i];
    } else {
      whole_ = true;
    }
  }

  int64_t count() const { return whole_ ? 1 : outer_ * cuts_; }

  Piece operator[](int64_t number) const {
    Piece piece{std::vector<int64_t>(shape_.size(), 0), shape_};
    if (whole_) return piece;
    const int64_t cut = number % cuts_;
    int64_t outer = number / cuts_;
    piece.begin[dim_] = cut * step_;
    piece.shape[dim_] = std::min(step_, shape_[dim_] - cut * step_);
    piece.first = (outer * shape_[dim_] + cut * step_) * inner_;
    for (size_t i = dim_; i-- > 0;) {
      piece.begin[i] = outer % shape_[i];
      piece.shape[i] = 1;
      outer /= shape_[i];
    }
    return piece;
  }

 private:
  const Shape& shape_;
  size_t dim_ = 0;
  int64_t inner_ = 1, step_ = 1, cuts_ = 1, outer_ = 1;
  bool whole_ = false;
};

// A view that owns its sizes and strides.
struct OwnedView {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  Shape sizes;
  Strides strides;

  TensorView view() const { return {data, dtype, sizes, strides}; }
};

// The part of an operand that a piece reads; dimensions that are repeated stay of size 1, so that a
// row still sees where it has a single number.
OwnedView part_of(const TensorView& operand, const Piece& piece) {
  OwnedView part{operand.data, operand.dtype, {}, {}};
  const size_t skipped = piece.shape.size() - operand.sizes.size();
  int64_t offset = 0;
  for (size_t i = 0; i < operand.sizes.size(); ++i) {
    const bool repeated = operand.sizes[i] == 1;
    part.sizes.push_back(repeated ? 1 : piece.shape[skipped + i]);
    part.strides.push_back(operand.strides[i]);
    if (!repeated) offset += piece.begin[skipped + i] * operand.strides[i];
  }
  part.data += offset * static_cast<int64_t>(size_of(operand.dtype));
  return part;
}

// Where a result's elements go before they are summed.
std::vector<std::byte*> destinations(const KernelCall& call, const Body& body,
                                     std::vector<std::vector<std::byte>>& summed, int64_t elements,
                                     std::span<const TensorType> steps) {
  std::vector<std::byte*> out;
  for (size_t i = 0; i < body.results.size(); ++i) {
    const BodyResult& result = body.results[i];
    if (!result.summed) {
      out.push_back(call.outputs[i].data);
      continue;
    }
    if (result.value.from == BodyValue::From::operand) {
      out.push_back(nullptr);
      continue;
    }
    const size_t size = size_of(steps[result.value.index].dtype);
    summed.emplace_back(static_cast<size_t>(elements) * size);
    out.push_back(summed.back().data());
  }
  return out;
}

void run_piece(const KernelCall& call, const Body& body, std::span<const TensorType> types,
               const Piece& piece, std::span<std::byte* const> to) {
  ThreadPool alone(1);
  const int64_t elements = numel(piece.shape);
  std::vector<OwnedView> operands, steps;
  for (const TensorView& operand : call.inputs) operands.push_back(part_of(operand, piece));
  std::vector<float> numbers;
  std::vector<std::vector<std::byte>> memory;
  for (size_t i = 0; i < body.steps.size(); ++i) {
    const BodyStep& step = body.steps[i];
    numbers.assign(step.arguments.size(), 0);
    std::vector<TensorView> inputs;
    for (size_t k = 0; k < step.arguments.size(); ++k) {
      const BodyValue& value = step.arguments[k];
      if (value.from == BodyValue::From::operand) {
        inputs.push_back(operands[value.index].view());
      } else if (value.from == BodyValue::From::step) {
        inputs.push_back(steps[value.index].view());
      } else {
        numbers[k] = static_cast<float>(value.number);
        inputs.push_back({reinterpret_cast<std::byte*>(&numbers[k]), DType::f32, {}, {}});
      }
    }
    memory.emplace_back(static_cast<size_t>(elements) * size_of(types[i].dtype));
    steps.push_back(
        {memory.back().data(), types[i].dtype, piece.shape, contiguous_strides(piece.shape)});
    const TensorView output = steps.back().view();
    step.row->cpu({inputs, {&output, 1}, step.attrs, alone, call.rng});
  }
  // Only now: a result may lie over an operand.
  for (size_t i = 0; i < body.results.size(); ++i) {
    if (!to[i]) continue;
    const OwnedView& value = steps[body.results[i].value.index];
    const auto size = static_cast<int64_t>(size_of(value.dtype));
    std::memcpy(to[i] + piece.first * size, value.data, static_cast<size_t>(elements * size));
  }
}

void run_sum(const KernelCall& call, const BodyResult& result, size_t number, const Shape& shape,
             std::byte* values, std::span<const TensorType> types) {
  OwnedView view{values, DType::f32, shape, contiguous_strides(shape)};
  if (result.value.from == BodyValue::From::operand) {
    const TensorView& operand = call.inputs[result.value.index];
    view.data = operand.data;
    view.dtype = operand.dtype;
    view.strides = broadcast_strides(operand.sizes, operand.strides, shape);
  } else {
    view.dtype = types[result.value.index].dtype;
  }
  const TensorView input = view.view();
  sum_row().cpu(
      {{&input, 1}, call.outputs.subspan(number, 1), sum_attributes(result), call.pool, call.rng});
}

void run_fused(const KernelCall& call) {
  const Body body = parse_body(call.attrs.text("body"));
  std::vector<TensorType> operands;
  Shape shape;
  for (const TensorView& operand : call.inputs) {
    operands.push_back({operand.dtype, {operand.sizes.begin(), operand.sizes.end()}});
    shape = broadcast(shape, operand.sizes);
  }
  const auto types = step_types(body, operands);
  std::vector<std::vector<std::byte>> summed;
  const auto to = destinations(call, body, summed, numel(shape), types);
  if (!body.steps.empty() && numel(shape) > 0) {
    const Pieces pieces(shape);
    call.pool.run(pieces.count(), [&](int64_t i) { run_piece(call, body, types, pieces[i], to); });
  }
  for (size_t i = 0; i < body.results.size(); ++i) {
    if (body.results[i].summed) run_sum(call, body.results[i], i, shape, to[i], types);
  }
}

Attrs body(std::string text) { return {{"body", std::move(text)}}; }

std::vector<Sample> map_samples() {
  return {
      {{reals({2, 3}), reals({3})}, body("%0 = add(a0, a1); %1 = relu(%0); out %1")},
      {{reals({4, 6, 5, 7}), reals({6, 1, 1}), reals({6, 1, 1}), reals({4, 6, 5, 7})},
       body("%0 = mul(a0, a1); %1 = add(%0, a2) {alpha = -1.0}; %2 = add(%1, a3); %3 = relu(%2); "
            "out %3")},
      {{reals({17, 1003}), reals({17, 1003})},
       body("%0 = gt(a0, 0.25); %1 = where(%0, a0, a1); %2 = mul(%1, 2.0); out %2, %1, %0")},
      {{reals({300, 33}), booleans({300, 33})},
       body("%0 = cast(a1) {dtype = f32}; %1 = mul(a0, %0); %2 = pow(%1, 2.0); out %2")},
      {{integers({9, 5}), integers({5})},
       body("%0 = mul(a0, a1); %1 = clamp(%0) {max = 3.0}; out %1")},
      {{reals({}), reals({})},
       body("%0 = gelu(a0) {approximate = \"tanh\"}; %1 = sub(%0, a1); out %1")}};
}

std::vector<Sample> map_reduce_samples() {
  return {
      {{reals({3, 4, 5, 6}), reals({3, 4, 5, 6}), reals({4, 1, 1})},
       body("%0 = threshold_backward(a0, a1); %1 = sub(a1, a2); %2 = mul(%0, %1); out sum %0 over "
            "[0, 2, 3], sum %2 over [0, 2, 3]")},
      {{reals({70, 129})}, body("%0 = exp(a0); out %0, sum %0 over [1] keepdim")},
      {{reals({19, 40})}, body("out sum a0 over [0]")},
      {{reals({5, 7}), reals({5, 7})},
       body("%0 = gt(a0, a1); %1 = mul(a0, a1); out sum %0 over [], sum %1 over [], %1")}};
}

// Every result may lie over every operand: a piece is stored when all of it was read.
std::vector<std::pair<size_t, size_t>> any_in_place() {
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t result = 0; result < 8; ++result) {
    for (size_t operand = 0; operand < 16; ++operand) pairs.emplace_back(result, operand);
  }
  return pairs;
}

}  // namespace

std::span<const OpDef> fused() {
  static const std::vector<OpDef> rows = {
      {.name = "map",
       .operands = "operands*",
       .results = "results*",
       .doc = "element-wise operators one after the other, as `body` says",
       .kind = Kind::elementwise,
       .attrs = {text("body")},
       .traits = {.in_place = any_in_place()},
       .infer = infer_map,
       .cost = fused_cost,
       .cpu = run_fused,
       .samples = map_samples()},
      {.name = "map_reduce",
       .operands = "operands*",
       .results = "results*",
       .doc = "the same, and sums of its values",
       .kind = Kind::reduction,
       .attrs = {text("body")},
       .infer = infer_fused,
       .cost = fused_cost,
       .cpu = run_fused,
       .samples = map_reduce_samples()},
  };
  return rows;
}

}  // namespace tessera::families
