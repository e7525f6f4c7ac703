// Recurrent layers, one node for a layer in one direction, with their gradients. The input's
// product with its weights comes before them as a matrix product over all time steps.
#include "tessera/kernels/rnn.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ops/families.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

TensorView input_or_none(const KernelCall& call, size_t i) {
  if (call.has_input(i)) return call.inputs[i];
  TensorView none;
  none.present = false;
  return none;
}

void check_operand(const OpView& op, size_t i, const Shape& shape, std::string_view what,
                   std::string_view name) {
  OperandChecks(op, what).floating(i, name, shape);
}

struct Sizes {
  int64_t time, batch, hidden;
  DType dtype;

  // From a sequence [time, batch, parts * hidden].
  Sizes(const TensorType& sequence, int64_t parts, std::string_view what) : dtype(sequence.dtype) {
    check(is_floating(dtype), ErrorKind::type, "{}: a sequence must be floating point, not {}",
          what, name_of(dtype));
    const Shape& shape = sequence.shape;
    check(shape.size() == 3 && shape[0] > 0 && shape[2] % parts == 0,
          "{}: wanted a sequence [time, batch, {} * hidden] of at least one step, got shape {}",
          what, parts, to_string(shape));
    time = shape[0];
    batch = shape[1];
    hidden = shape[2] / parts;
  }

  Shape state() const { return {batch, hidden}; }
  Shape weight(int64_t gates) const { return {gates * hidden, hidden}; }
  Shape sequence(int64_t parts) const { return {time, batch, parts * hidden}; }
  TensorType typed(Shape shape) const { return {dtype, std::move(shape)}; }
};

enum class Time { forward, backward };

// One product of all rows of the batch for every gate and step. `weight` is the operand
// [gates * hidden, hidden].
template <size_t weight, Time time>
Cost cost_of_steps(const OpView& op, std::span<const TensorType> results) {
  RecurrentCost cost;
  cost.steps = results[0].shape[0];
  cost.batch = results[0].shape[1];
  cost.hidden = op.shape(weight)[1];
  cost.gates = op.shape(weight)[0] / std::max<int64_t>(1, cost.hidden);
  cost.backward = time == Time::backward;
  cost.type = results[0].dtype;
  cost.multiply_adds = cost.steps * cost.batch * cost.hidden * op.shape(weight)[0];
  return cost;
}

// ---- LSTM

std::vector<TensorType> infer_lstm(const OpView& op) {
  constexpr std::string_view what = "lstm";
  const Sizes sizes(op.type(0), 4, what);
  check_operand(op, 0, sizes.sequence(4), what, "projected");
  check_operand(op, 1, sizes.state(), what, "h0");
  check_operand(op, 2, sizes.state(), what, "c0");
  check_operand(op, 3, sizes.weight(4), what, "weight");
  check_operand(op, 4, {4 * sizes.hidden}, what, "bias_ih");
  check_operand(op, 5, {4 * sizes.hidden}, what, "bias_hh");
  const TensorType states = sizes.typed(sizes.sequence(1)), state = sizes.typed(sizes.state());
  return {states, state, state, states, op.type(0)};
}

void run_lstm(const KernelCall& call) {
  kernels::lstm({.projected = call.inputs[0],
                 .h0 = call.inputs[1],
                 .c0 = call.inputs[2],
                 .weight = call.inputs[3],
                 .bias_ih = input_or_none(call, 4),
                 .bias_hh = input_or_none(call, 5),
                 .reverse = call.attrs.flag("reverse"),
                 .output = call.outputs[0],
                 .hn = call.outputs[1],
                 .cn = call.outputs[2],
                 .cells = call.outputs[3],
                 .gates = call.outputs[4]},
                call.pool);
}

std::vector<TensorType> infer_lstm_backward(const OpView& op) {
  constexpr std::string_view what = "lstm_backward";
  const Sizes sizes(op.type(5), 1, what);
  check_operand(op, 0, sizes.sequence(1), what, "grad_output");
  check_operand(op, 1, sizes.state(), what, "grad_hn");
  check_operand(op, 2, sizes.state(), what, "grad_cn");
  check_operand(op, 3, sizes.state(), what, "c0");
  check_operand(op, 4, sizes.weight(4), what, "weight");
  check_operand(op, 6, sizes.sequence(4), what, "gates");
  return {sizes.typed(sizes.sequence(4)), sizes.typed(sizes.state()), sizes.typed(sizes.state())};
}

void run_lstm_backward(const KernelCall& call) {
  kernels::lstm_backward({.grad_output = input_or_none(call, 0),
                          .grad_hn = input_or_none(call, 1),
                          .grad_cn = input_or_none(call, 2),
                          .c0 = call.inputs[3],
                          .weight = call.inputs[4],
                          .cells = call.inputs[5],
                          .gates = call.inputs[6],
                          .reverse = call.attrs.flag("reverse"),
                          .grad_projected = call.outputs[0],
                          .grad_h0 = call.outputs[1],
                          .grad_c0 = call.outputs[2]},
                         call.pool);
}

// ---- GRU

std::vector<TensorType> infer_gru(const OpView& op) {
  constexpr std::string_view what = "gru";
  const Sizes sizes(op.type(0), 3, what);
  check_operand(op, 0, sizes.sequence(3), what, "projected");
  check_operand(op, 1, sizes.state(), what, "h0");
  check_operand(op, 2, sizes.weight(3), what, "weight");
  check_operand(op, 3, {3 * sizes.hidden}, what, "bias_ih");
  check_operand(op, 4, {3 * sizes.hidden}, what, "bias_hh");
  return {sizes.typed(sizes.sequence(1)), sizes.typed(sizes.state()),
          sizes.typed(sizes.sequence(4))};
}

void run_gru(const KernelCall& call) {
  kernels::gru({.projected = call.inputs[0],
                .h0 = call.inputs[1],
                .weight = call.inputs[2],
                .bias_ih = input_or_none(call, 3),
                .bias_hh = input_or_none(call, 4),
                .reverse = call.attrs.flag("reverse"),
                .output = call.outputs[0],
                .hn = call.outputs[1],
                .gates = call.outputs[2]},
               call.pool);
}

std::vector<TensorType> infer_gru_backward(const OpView& op) {
  constexpr std::string_view what = "gru_backward";
  const Sizes sizes(op.type(4), 1, what);
  check_operand(op, 0, sizes.sequence(1), what, "grad_output");
  check_operand(op, 1, sizes.state(), what, "grad_hn");
  check_operand(op, 2, sizes.state(), what, "h0");
  check_operand(op, 3, sizes.weight(3), what, "weight");
  check_operand(op, 5, sizes.sequence(4), what, "gates");
  const TensorType gates = sizes.typed(sizes.sequence(3));
  return {gates, gates, sizes.typed(sizes.state())};
}

void run_gru_backward(const KernelCall& call) {
  kernels::gru_backward({.grad_output = input_or_none(call, 0),
                         .grad_hn = input_or_none(call, 1),
                         .h0 = call.inputs[2],
                         .weight = call.inputs[3],
                         .output = call.inputs[4],
                         .gates = call.inputs[5],
                         .reverse = call.attrs.flag("reverse"),
                         .grad_projected = call.outputs[0],
                         .grad_hidden = call.outputs[1],
                         .grad_h0 = call.outputs[2]},
                        call.pool);
}

// ---- The plain cell

std::vector<TensorType> infer_rnn(const OpView& op) {
  constexpr std::string_view what = "rnn";
  const Sizes sizes(op.type(0), 1, what);
  check_operand(op, 0, sizes.sequence(1), what, "projected");
  check_operand(op, 1, sizes.state(), what, "h0");
  check_operand(op, 2, sizes.weight(1), what, "weight");
  check_operand(op, 3, {sizes.hidden}, what, "bias_ih");
  check_operand(op, 4, {sizes.hidden}, what, "bias_hh");
  return {op.type(0), sizes.typed(sizes.state())};
}

void run_rnn(const KernelCall& call) {
  kernels::rnn({.projected = call.inputs[0],
                .h0 = call.inputs[1],
                .weight = call.inputs[2],
                .bias_ih = input_or_none(call, 3),
                .bias_hh = input_or_none(call, 4),
                .relu = call.attrs.flag("relu"),
                .reverse = call.attrs.flag("reverse"),
                .output = call.outputs[0],
                .hn = call.outputs[1]},
               call.pool);
}

std::vector<TensorType> infer_rnn_backward(const OpView& op) {
  constexpr std::string_view what = "rnn_backward";
  const Sizes sizes(op.type(3), 1, what);
  check_operand(op, 0, sizes.sequence(1), what, "grad_output");
  check_operand(op, 1, sizes.state(), what, "grad_hn");
  check_operand(op, 2, sizes.weight(1), what, "weight");
  return {op.type(3), sizes.typed(sizes.state())};
}

void run_rnn_backward(const KernelCall& call) {
  kernels::rnn_backward({.grad_output = input_or_none(call, 0),
                         .grad_hn = input_or_none(call, 1),
                         .weight = call.inputs[2],
                         .output = call.inputs[3],
                         .relu = call.attrs.flag("relu"),
                         .reverse = call.attrs.flag("reverse"),
                         .grad_projected = call.outputs[0],
                         .grad_h0 = call.outputs[1]},
                        call.pool);
}

// The batch of the larger samples is more than one piece of work, the hidden size no whole vector.
std::vector<OpDef> make_rows() {
  constexpr Domain gate{0, 1};
  const Attrs back = {{"reverse", true}};
  const Attrs relu_back = {{"relu", true}, {"reverse", true}};
  return {
      {.name = "lstm",
       .operands = "projected, h0, c0, weight, bias_ih?, bias_hh?",
       .results = "output, hn, cn, cells, gates",
       .doc = "One layer of long short-term memory in one direction, over the input's part of the "
              "gates.",
       .kind = Kind::contraction,
       .attrs = {flag("reverse")},
       .aten = {{"poptorch::lstm", "projected, h0, c0, weight, bias_ih, bias_hh | reverse"}},
       .traits = {.in_place = {{4, 0}}},
       .infer = infer_lstm,
       .cost = cost_of_steps<3, Time::forward>,
       .cpu = run_lstm,
       .samples = {Sample{{reals({3, 2, 20}), reals({2, 5}), reals({2, 5}), reals({20, 5}),
                           reals({20}), reals({20})},
                          {{"reverse", false}}},
                   Sample{{reals({4, 15, 36}), reals({15, 9}), reals({15, 9}), reals({36, 9}),
                           left_out(), left_out()},
                          back}}},
      {.name = "lstm_backward",
       .operands = "grad_output?, grad_hn?, grad_cn?, c0, weight, cells, gates",
       .results = "grad_projected, grad_h0, grad_c0",
       .doc = "The gradients of lstm.",
       .kind = Kind::contraction,
       .attrs = {flag("reverse")},
       .aten = {{"poptorch::lstm_backward",
                 "grad_output, grad_hn, grad_cn, c0, weight, cells, gates | reverse"}},
       .traits = {.in_place = {{0, 6}}},
       .infer = infer_lstm_backward,
       .cost = cost_of_steps<4, Time::backward>,
       .cpu = run_lstm_backward,
       .samples = {Sample{{reals({3, 2, 5}), left_out(), left_out(), reals({2, 5}), reals({20, 5}),
                           reals({3, 2, 5}), reals({3, 2, 20}, gate)},
                          {{"reverse", false}}},
                   Sample{{left_out(), reals({15, 9}), reals({15, 9}), reals({15, 9}),
                           reals({36, 9}), reals({4, 15, 9}), reals({4, 15, 36}, gate)},
                          back}}},
      {.name = "gru",
       .operands = "projected, h0, weight, bias_ih?, bias_hh?",
       .results = "output, hn, gates",
       .doc = "One layer of gated recurrent units in one direction, over the input's part of the "
              "gates.",
       .kind = Kind::contraction,
       .attrs = {flag("reverse")},
       .aten = {{"poptorch::gru", "projected, h0, weight, bias_ih, bias_hh | reverse"}},
       .infer = infer_gru,
       .cost = cost_of_steps<2, Time::forward>,
       .cpu = run_gru,
       .samples = {Sample{
                       {reals({3, 2, 15}), reals({2, 5}), reals({15, 5}), reals({15}), reals({15})},
                       {{"reverse", false}}},
                   Sample{
                       {reals({4, 15, 27}), reals({15, 9}), reals({27, 9}), left_out(), left_out()},
                       back}}},
      {.name = "gru_backward",
       .operands = "grad_output?, grad_hn?, h0, weight, output, gates",
       .results = "grad_projected, grad_hidden, grad_h0",
       .doc = "The gradients of gru.",
       .kind = Kind::contraction,
       .attrs = {flag("reverse")},
       .aten = {{"poptorch::gru_backward",
                 "grad_output, grad_hn, h0, weight, output, gates | reverse"}},
       .infer = infer_gru_backward,
       .cost = cost_of_steps<3, Time::backward>,
       .cpu = run_gru_backward,
       .samples = {Sample{{reals({3, 2, 5}), left_out(), reals({2, 5}), reals({15, 5}),
                           reals({3, 2, 5}), reals({3, 2, 20}, gate)},
                          {{"reverse", false}}},
                   Sample{{left_out(), reals({15, 9}), reals({15, 9}), reals({27, 9}),
                           reals({4, 15, 9}), reals({4, 15, 36}, gate)},
                          back}}},
      {.name = "rnn",
       .operands = "projected, h0, weight, bias_ih?, bias_hh?",
       .results = "output, hn",
       .doc = "One layer of plain recurrent units (tanh or relu) in one direction, over the "
              "input's part.",
       .kind = Kind::contraction,
       .attrs = {flag("relu"), flag("reverse")},
       .aten = {{"poptorch::rnn", "projected, h0, weight, bias_ih, bias_hh | relu, reverse"}},
       .traits = {.in_place = {{0, 0}}},
       .infer = infer_rnn,
       .cost = cost_of_steps<2, Time::forward>,
       .cpu = run_rnn,
       .samples = {Sample{{reals({3, 2, 5}), reals({2, 5}), reals({5, 5}), reals({5}), reals({5})},
                          {{"relu", false}, {"reverse", false}}},
                   Sample{
                       {reals({4, 15, 9}), reals({15, 9}), reals({9, 9}), left_out(), left_out()},
                       relu_back}}},
      {.name = "rnn_backward",
       .operands = "grad_output?, grad_hn?, weight, output",
       .results = "grad_projected, grad_h0",
       .doc = "The gradients of rnn.",
       .kind = Kind::contraction,
       .attrs = {flag("relu"), flag("reverse")},
       .aten = {{"poptorch::rnn_backward", "grad_output, grad_hn, weight, output | relu, reverse"}},
       .traits = {.in_place = {{0, 0}}},
       .infer = infer_rnn_backward,
       .cost = cost_of_steps<2, Time::backward>,
       .cpu = run_rnn_backward,
       .samples = {Sample{{reals({3, 2, 5}), left_out(), reals({5, 5}), reals({3, 2, 5})},
                          {{"relu", false}, {"reverse", false}}},
                   Sample{{left_out(), reals({15, 9}), reals({9, 9}), reals({4, 15, 9})},
                          relu_back}}},
  };
}

}  // namespace

std::span<const OpDef> families::rnn() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
