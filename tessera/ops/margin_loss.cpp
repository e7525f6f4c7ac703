// Losses that want the right classes to be ahead of the others by a margin, and their gradients.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/base/scratch.h"
#include "tessera/kernels/copy.h"
#include "tessera/ops/families.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

enum Reduction : int64_t { none = 0, mean = 1, sum = 2 };

// Scores as [batch, classes]; a single vector is a batch of one.
struct Scores {
  int64_t batch = 1, classes = 1;

  explicit Scores(std::span<const int64_t> shape) {
    if (shape.size() == 2) batch = shape[0];
    if (!shape.empty()) classes = shape.back();
  }
};

TensorType loss_type(const OpView& op, size_t input, bool batched) {
  check_reduction(op.attrs());
  const int64_t reduction = op.attrs().integer("reduction");
  const TensorType& x = op.type(input);
  check(x.shape.size() <= 2 && is_floating(x.dtype),
        "a margin loss wants floating point of shape [batch, classes], got {}", to_string(x));
  return {x.dtype, reduction == none && batched ? Shape{Scores(x.shape).batch} : Shape{}};
}

// The gradient that arrives, operand 0, is one for all or one for each image.
void check_arriving(const OpView& op) {
  OperandChecks(op, "the gradient of a margin loss").floating(0, "the arriving gradient");
  const int64_t count = numel(op.shape(0)), batch = Scores(op.shape(1)).batch;
  check(count == 1 || count == batch, ErrorKind::value,
        "a margin loss of {} images cannot have a gradient of shape {}", batch,
        to_string(op.shape(0)));
}

Cost cost_of_margins(const OpView& op, std::span<const TensorType>) {
  return ElementwiseCost{numel(op.shape(0)), 4};
}

// By how much one image's gradient is scaled, and where the gradient that arrives is read.
struct Arriving {
  const float* grad;
  bool single;
  double scale;

  Arriving(const kernels::Dense& dense, const Attrs& attrs, int64_t batch)
      : grad(dense.as<float>()),
        single(dense.view().numel() == 1),
        scale(attrs.integer("reduction") == mean ? 1.0 / static_cast<double>(batch) : 1.0) {}
  double of(int64_t image) const { return scale * static_cast<double>(grad[single ? 0 : image]); }
};

void store_losses(const ScratchVector<double>& losses, const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  const int64_t reduction = call.attrs.integer("reduction");
  if (reduction == none) {
    std::copy(losses.begin(), losses.end(), out.as<float>());
    return;
  }
  double total = std::accumulate(losses.begin(), losses.end(), 0.0);
  if (reduction == mean) total /= static_cast<double>(losses.size());
  *out.as<float>() = static_cast<float>(total);
}

// ---- One right class for each image

int64_t checked_class(int64_t target, int64_t classes) {
  check(target >= 0 && target < classes, "multi_margin_loss: class {} is not one of {}", target,
        classes);
  return target;
}

void check_targets(const OpView& op, size_t input) {
  const Scores scores(op.shape(input));
  const TensorType& target = op.type(input + 1);
  const OperandChecks operands(op, "multi_margin_loss");
  operands.index(input + 1, "the target");
  operands.floating(input + 2, "the weight");
  operands.rank(input + 2, "the weight", 0, 1);
  check(numel(target.shape) == scores.batch,
        "multi_margin_loss: wanted a class for each of {} images, got {}", scores.batch,
        to_string(target));
  const double p = op.attrs().number("p");
  check(p == 1 || p == 2, ErrorKind::value, "multi_margin_loss: p must be 1 or 2, got {}", p);
  if (op.has(input + 2)) {
    check(numel(op.shape(input + 2)) == scores.classes,
          "multi_margin_loss: wanted a weight for each of {} classes, got shape {}", scores.classes,
          to_string(op.shape(input + 2)));
  }
}

std::vector<TensorType> infer_multi(const OpView& op) {
  check_targets(op, 0);
  return {loss_type(op, 0, !op.shape(1).empty())};
}

std::vector<TensorType> infer_multi_backward(const OpView& op) {
  check_targets(op, 1);
  loss_type(op, 1, true);
  check_arriving(op);
  return {op.type(1)};
}

// Calls visit(image, right class, other class, by how much the margin is missed, weight).
template <typename Visit>
void for_each_miss(const KernelCall& call, size_t input, const Visit& visit) {
  const kernels::Dense x(call.inputs[input], call.pool);
  const kernels::Dense target(call.inputs[input + 1], call.pool);
  const Scores scores(x.view().sizes);
  const double margin = call.attrs.number("margin");
  for (int64_t i = 0; i < scores.batch; ++i) {
    const float* row = x.as<float>() + i * scores.classes;
    const int64_t right = checked_class(target.as<int32_t>()[i], scores.classes);
    double weight = 1.0 / static_cast<double>(scores.classes);
    if (call.has_input(input + 2)) {
      const TensorView& weights = call.inputs[input + 2];
      const int64_t stride = weights.rank() == 0 ? 0 : weights.strides[0];
      weight *= static_cast<double>(weights.as<float>()[right * stride]);
    }
    for (int64_t j = 0; j < scores.classes; ++j) {
      const double miss = margin - static_cast<double>(row[right]) + static_cast<double>(row[j]);
      if (j != right && miss > 0) visit(i, right, j, miss, weight);
    }
  }
}

void run_multi(const KernelCall& call) {
  ScratchVector<double> losses(static_cast<size_t>(Scores(call.inputs[0].sizes).batch));
  const bool squares = call.attrs.number("p") == 2;
  for_each_miss(call, 0, [&](int64_t i, int64_t, int64_t, double miss, double weight) {
    losses[static_cast<size_t>(i)] += weight * (squares ? miss * miss : miss);
  });
  store_losses(losses, call);
}

void run_multi_backward(const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  const Scores scores(out.sizes);
  const kernels::Dense grad(call.inputs[0], call.pool);
  const Arriving arriving(grad, call.attrs, scores.batch);
  const bool squares = call.attrs.number("p") == 2;
  ScratchVector<double> sums(static_cast<size_t>(out.numel()));
  for_each_miss(call, 1, [&](int64_t i, int64_t right, int64_t j, double miss, double weight) {
    const double share = arriving.of(i) * weight * (squares ? 2 * miss : 1);
    sums[static_cast<size_t>(i * scores.classes + j)] += share;
    sums[static_cast<size_t>(i * scores.classes + right)] -= share;
  });
  std::copy(sums.begin(), sums.end(), out.as<float>());
}

// ---- Several right classes: a row of them, ended by -1

std::vector<TensorType> infer_multilabel(const OpView& op) {
  OperandChecks(op, "multilabel_margin_loss").index(1, "the target", op.shape(0));
  return {loss_type(op, 0, op.shape(0).size() == 2), {op.type(0).dtype, op.shape(1)}};
}

std::vector<TensorType> infer_multilabel_backward(const OpView& op) {
  loss_type(op, 1, true);
  check_arriving(op);
  const OperandChecks operands(op, "multilabel_margin_loss_backward");
  operands.index(2, "the target", op.shape(1));
  operands.floating(3, "is_target", op.shape(1));
  return {op.type(1)};
}

// Calls visit(image, right class, wrong class, miss) for pairs whose margin is missed; is_right
// holds 1 for right classes.
template <typename Visit>
void for_each_label_miss(const TensorView& x, const TensorView& targets, ThreadPool& pool,
                         ScratchVector<float>& is_right, const Visit& visit) {
  const kernels::Dense scores(x, pool);
  const kernels::Dense labels(targets, pool);
  const Scores size(x.sizes);
  is_right.assign(static_cast<size_t>(x.numel()), 0);
  for (int64_t i = 0; i < size.batch; ++i) {
    const int64_t first = i * size.classes;
    const int32_t* label = labels.as<int32_t>() + first;
    int64_t count = 0;
    for (; count < size.classes && label[count] >= 0; ++count) {
      is_right[static_cast<size_t>(first + checked_class(label[count], size.classes))] = 1;
    }
    for (int64_t k = 0; k < count; ++k) {
      for (int64_t j = 0; j < size.classes; ++j) {
        if (is_right[static_cast<size_t>(first + j)] != 0) continue;
        const double miss = 1 - static_cast<double>(scores.as<float>()[first + label[k]]) +
                            static_cast<double>(scores.as<float>()[first + j]);
        if (miss > 0) visit(i, label[k], j, miss);
      }
    }
  }
}

void run_multilabel(const KernelCall& call) {
  const Scores size(call.inputs[0].sizes);
  ScratchVector<double> losses(static_cast<size_t>(size.batch));
  ScratchVector<float> is_right;
  for_each_label_miss(call.inputs[0], call.inputs[1], call.pool, is_right,
                      [&](int64_t i, int64_t, int64_t, double miss) {
                        losses[static_cast<size_t>(i)] += miss / static_cast<double>(size.classes);
                      });
  store_losses(losses, call);
  std::copy(is_right.begin(), is_right.end(), call.outputs[1].as<float>());
}

void run_multilabel_backward(const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  const Scores size(out.sizes);
  const kernels::Dense grad(call.inputs[0], call.pool);
  const Arriving arriving(grad, call.attrs, size.batch);
  ScratchVector<double> sums(static_cast<size_t>(out.numel()));
  ScratchVector<float> is_right;
  for_each_label_miss(call.inputs[1], call.inputs[2], call.pool, is_right,
                      [&](int64_t i, int64_t right, int64_t wrong, double) {
                        const double share = arriving.of(i) / static_cast<double>(size.classes);
                        sums[static_cast<size_t>(i * size.classes + wrong)] += share;
                        sums[static_cast<size_t>(i * size.classes + right)] -= share;
                      });
  std::copy(sums.begin(), sums.end(), out.as<float>());
}

// ---- Rows

template <typename Add>
void for_each_reduction(const Add& add) {
  for (const int64_t reduction : {none, mean, sum}) add(reduction);
}

std::vector<Sample> multi_samples(bool gradient) {
  std::vector<Sample> samples;
  for_each_reduction([&](int64_t reduction) {
    Sample one{{reals({5, 4}), integers({5}, {0, 4}), reals({4}, {0.5, 2})},
               {{"reduction", reduction}, {"p", reduction == sum ? 2.0 : 1.0}, {"margin", 0.8}}};
    if (reduction == mean) one.operands[2] = left_out();
    if (gradient) {
      one.operands.insert(one.operands.begin(), reals(reduction == none ? Shape{5} : Shape{}));
    }
    samples.push_back(std::move(one));
  });
  return samples;
}

std::vector<Sample> multilabel_samples(bool gradient) {
  std::vector<Sample> samples;
  for_each_reduction([&](int64_t reduction) {
    // PyTorch wants is_target to go with the targets: for a gradient alone there are none.
    Sample one{{reals({5, 4}), integers({5, 4}, {-1, gradient ? 0.0 : 4.0})},
               {{"reduction", reduction}}};
    if (gradient) {
      one.operands.insert(one.operands.begin(), reals(reduction == none ? Shape{5} : Shape{}));
      one.operands.push_back(reals({5, 4}, {0, 0}));
    }
    samples.push_back(std::move(one));
  });
  return samples;
}

std::vector<OpDef> make_rows() {
  const AttrSpec reduction = integer("reduction", mean);
  const AttrSchema multi = {number("p", 1), number("margin", 1), reduction};
  return {
      {.name = "multi_margin_loss",
       .operands = "self, target, weight?",
       .results = "out",
       .doc = "by how much other classes come closer than the margin to the right one",
       .kind = Kind::reduction,
       .attrs = multi,
       .aten = {{"multi_margin_loss", "self, target, weight | p, margin, reduction"}},
       .infer = infer_multi,
       .cost = cost_of_margins,
       .cpu = run_multi,
       .samples = multi_samples(false)},
      {.name = "multi_margin_loss_backward",
       .operands = "grad_output, self, target, weight?",
       .results = "grad_input",
       .doc = "gradient of multi_margin_loss",
       .kind = Kind::reduction,
       .attrs = multi,
       .aten = {{"multi_margin_loss_backward",
                 "grad_output, self, target, weight | p, margin, reduction"}},
       .infer = infer_multi_backward,
       .cost = cost_of_margins,
       .cpu = run_multi_backward,
       .samples = multi_samples(true)},
      {.name = "multilabel_margin_loss_forward",
       .operands = "self, target",
       .results = "output, is_target",
       .doc = "by how much wrong classes come closer than 1 to right ones",
       .kind = Kind::reduction,
       .attrs = {reduction},
       .aten = {{"multilabel_margin_loss_forward", "self, target | reduction"}},
       .infer = infer_multilabel,
       .cost = cost_of_margins,
       .cpu = run_multilabel,
       .samples = multilabel_samples(false)},
      {.name = "multilabel_margin_loss_backward",
       .operands = "grad_output, self, target, is_target",
       .results = "grad_input",
       .doc = "gradient of multilabel_margin_loss_forward",
       .kind = Kind::reduction,
       .attrs = {reduction},
       .aten = {{"multilabel_margin_loss_backward",
                 "grad_output, self, target, is_target | reduction"}},
       .infer = infer_multilabel_backward,
       .cost = cost_of_margins,
       .cpu = run_multilabel_backward,
       .samples = multilabel_samples(true)},
  };
}

}  // namespace

std::span<const OpDef> families::margin_loss() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
