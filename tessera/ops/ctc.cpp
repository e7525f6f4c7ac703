// Connectionist temporal classification, the loss of a sequence without alignment.
#include "tessera/kernels/ctc.h"

#include "tessera/base/error.h"
#include "tessera/ops/families.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

void check_integers(const TensorType& type, std::string_view name) {
  check(type.dtype == DType::i32 || type.dtype == DType::i64, ErrorKind::type,
        "ctc_loss: {} must be int32 or int64, not {}", name, name_of(type.dtype));
}

// Of log_probs, targets and both lengths, which begin at operand `first`; the losses' type.
TensorType check_operands(const OpView& op, size_t first) {
  const TensorType& log_probs = op.type(first);
  check(is_floating(log_probs.dtype), ErrorKind::type,
        "ctc_loss: log_probs must be floating point, not {}", name_of(log_probs.dtype));
  check(log_probs.shape.size() == 3, "ctc_loss: log_probs must be [time, batch, classes], got {}",
        to_string(log_probs.shape));
  const Shape per_sample{log_probs.shape[1]};
  const Shape& targets = op.shape(first + 1);
  check_integers(op.type(first + 1), "targets");
  check(targets.size() == 1 || (targets.size() == 2 && targets[0] == per_sample[0]),
        "ctc_loss: targets must be one row of all labels or [{}, longest], got shape {}",
        per_sample[0], to_string(targets));
  check_integers(op.type(first + 2), "input_lengths");
  check_integers(op.type(first + 3), "target_lengths");
  check(op.shape(first + 2) == per_sample && op.shape(first + 3) == per_sample,
        "ctc_loss: wanted one input length and one target length for each of the {} samples, got "
        "shapes {} and {}",
        per_sample[0], to_string(op.shape(first + 2)), to_string(op.shape(first + 3)));
  const int64_t blank = op.attrs().integer("blank");
  check(blank >= 0 && blank < log_probs.shape[2], "ctc_loss: blank {} is not one of the {} classes",
        blank, log_probs.shape[2]);
  return {log_probs.dtype, per_sample};
}

std::vector<TensorType> infer_ctc_loss(const OpView& op) { return {check_operands(op, 0)}; }

std::vector<TensorType> infer_ctc_loss_backward(const OpView& op) {
  const TensorType loss = check_operands(op, 1);
  OperandChecks(op, "ctc_loss").floating(0, "the gradient", loss.shape);
  return {op.type(1)};
}

// Each step looks at every label and the blank beside it; `walks` steps through time.
template <size_t first, int64_t walks>
Cost cost_of_ctc(const OpView& op, std::span<const TensorType>) {
  const Shape& log_probs = op.shape(first);
  const Shape& targets = op.shape(first + 1);
  const int64_t labels = targets.size() == 2 ? numel(targets) : targets[0];
  return ElementwiseCost{walks * log_probs[0] * (2 * labels + log_probs[1]), 12};
}

kernels::Ctc ctc_of(const KernelCall& call, size_t first) {
  return {.log_probs = call.inputs[first],
          .targets = call.inputs[first + 1],
          .input_lengths = call.inputs[first + 2],
          .target_lengths = call.inputs[first + 3],
          .blank = call.attrs.integer("blank"),
          .zero_infinity = call.attrs.flag("zero_infinity")};
}

void run_ctc_loss(const KernelCall& call) {
  kernels::ctc_loss(ctc_of(call, 0), call.outputs[0], call.pool);
}

void run_ctc_loss_backward(const KernelCall& call) {
  kernels::ctc_loss_backward(ctc_of(call, 1), call.inputs[0], call.outputs[0], call.pool);
}

std::vector<OpDef> make_rows() {
  const AttrSchema attrs = {integer("blank", 0), flag("zero_infinity", false)};
  constexpr Domain logarithms{-4, 0};
  const std::vector<SampleOperand> padded = {reals({7, 3, 5}, logarithms), integers({3, 4}, {0, 5}),
                                             integers({3}, {4, 8}), integers({3}, {0, 5})};
  const std::vector<SampleOperand> in_one_row = {reals({7, 2, 4}, logarithms),
                                                 integers({6}, {1, 4}), integers({2}, {6, 8}),
                                                 integers({2}, {1, 4})};
  const Attrs other = {{"blank", attr(2)}, {"zero_infinity", true}};
  const auto with_gradient = [](std::vector<SampleOperand> operands) {
    operands.insert(operands.begin(), reals(operands[2].type.shape));
    return operands;
  };
  return {
      {.name = "ctc_loss",
       .operands = "log_probs, targets, input_lengths, target_lengths",
       .results = "loss",
       .doc = "For each sample, the negative logarithm of the probability of all alignments of its "
              "labels.",
       .kind = Kind::reduction,
       .attrs = attrs,
       .aten = {{"poptorch::ctc_loss",
                 "log_probs, targets, input_lengths, target_lengths | blank, zero_infinity"}},
       .infer = infer_ctc_loss,
       .cost = cost_of_ctc<0, 1>,
       .cpu = run_ctc_loss,
       .samples = {Sample{padded}, Sample{padded, other}, Sample{in_one_row}}},
      {.name = "ctc_loss_backward",
       .operands = "grad_loss, log_probs, targets, input_lengths, target_lengths",
       .results = "grad_log_probs",
       .doc =
           "The gradient of ctc_loss, as PyTorch does it: that of what came into the log_softmax "
           "before it.",
       .kind = Kind::gather,
       .attrs = attrs,
       .aten = {{"poptorch::ctc_loss_backward",
                 "grad_loss, log_probs, targets, input_lengths, target_lengths | blank, "
                 "zero_infinity"}},
       .infer = infer_ctc_loss_backward,
       .cost = cost_of_ctc<1, 2>,
       .cpu = run_ctc_loss_backward,
       .samples = {Sample{with_gradient(padded)}, Sample{with_gradient(padded), other},
                   Sample{with_gradient(in_one_row)}}},
  };
}

}  // namespace

std::span<const OpDef> families::ctc() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
