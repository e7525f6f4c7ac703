// Losses of labelled classes as kernels see them: the numbers of a use, the checks of labels, and
// the sum of the losses of all pieces.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/base/error.h"

namespace tessera::cpu::labelled_classes {

enum Reduction : int64_t { none = 0, mean = 1, sum = 2 };

// Scores as [batch, classes, places]; a label for each of batch * places.
struct Problem {
  int64_t batch = 1, classes = 1, places = 1;
  int64_t reduction = mean, ignored = 0;

  int64_t targets() const { return batch * places; }
};

inline Problem problem_of(const KernelUse& use, const Shape& shape) {
  Problem p;
  p.classes = shape.size() == 1 ? shape[0] : shape[1];
  p.batch = shape.size() == 1 ? 1 : shape[0];
  p.places = numel(shape) / (p.batch * p.classes);
  p.reduction = use.attrs.integer("reduction");
  p.ignored = use.attrs.integer("ignore_index");
  return p;
}

inline bool is_plain(const KernelOperand& x, DType dtype) {
  return !x.present || (x.layout.plain() && x.dtype == dtype &&
                        same_elements(x.geometry, dense(x.geometry.shape)));
}

inline void check_label(const Problem& p, int32_t label) {
  if (label == p.ignored || (label >= 0 && label < p.classes)) return;
  fail(ErrorKind::user, "class index {} is outside the {} classes", label, p.classes);
}

inline void check_labels(const Problem& p, const int32_t* labels, int64_t count) {
  for (int64_t i = 0; i < count; ++i) check_label(p, labels[i]);
}

// Of one piece.
struct Losses {
  double loss = 0, weight = 0;
};

// The losses of all pieces as results 0 and 1, the loss and the total weight.
inline void write_sums(const Problem& p, std::span<const Losses> pieces, const KernelCall& call) {
  auto* total_weight = call.outputs[1].as<float>();
  *total_weight = 0;
  if (p.reduction == none) return;
  Losses all;
  for (const Losses& piece : pieces) {
    all.loss += piece.loss;
    all.weight += piece.weight;
  }
  *call.outputs[0].as<float>() =
      static_cast<float>(p.reduction == mean ? all.loss / all.weight : all.loss);
  *total_weight = static_cast<float>(all.weight);
}

// The gradient of a target's log probability: backward(grad, self, target, weight?, total_weight).
inline float share_of(const Problem& p, const KernelCall& call, int64_t target, int64_t label) {
  const float weight = call.has_input(3) ? call.inputs[3].as<float>()[label] : 1;
  const float share = weight * call.inputs[0].as<float>()[p.reduction == none ? target : 0];
  return -(p.reduction == mean ? share / *call.inputs[4].as<float>() : share);
}

}  // namespace tessera::cpu::labelled_classes
