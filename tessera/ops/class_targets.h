// What losses of labelled classes share: how scores and labels belong together, the checks of
// operands, and the sum of the losses.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "tessera/base/scratch.h"
#include "tessera/kernels/elementwise.h"
#include "tessera/kernels/operand_reader.h"
#include "tessera/ops/op_def.h"

namespace tessera::class_targets {

enum Reduction : int64_t { none = 0, mean = 1, sum = 2 };

// Scores as [batch, classes, places]; a target for each of batch * places.
struct Layout {
  int64_t batch = 1, classes = 1, places = 1;

  explicit Layout(std::span<const int64_t> shape);
  int64_t targets() const { return batch * places; }
  int64_t at(int64_t target, int64_t label) const {
    return (target / places * classes + label) * places + target % places;
  }
};

// Reads single elements of an operand by their row-major number.
template <typename T>
class Elements {
 public:
  explicit Elements(const TensorView& view) : reader_(view, view.sizes) {}
  T operator[](int64_t i) const {
    std::byte scratch[OperandReader::scratch_bytes];
    return *reader_.template read_as<T>(i, 1, scratch);
  }

 private:
  OperandReader reader_;
};

// Labels and the weights of their classes.
class Targets {
 public:
  // `target` and `weight` are the numbers of operands.
  Targets(const KernelCall& call, size_t target, size_t weight, int64_t classes);

  int64_t count() const { return static_cast<int64_t>(labels_.size()); }
  bool ignored(int64_t target) const { return raw(target) == ignored_; }
  int64_t label(int64_t target) const;
  float weight(int64_t label) const { return weights_[static_cast<size_t>(label)]; }

 private:
  int64_t raw(int64_t target) const { return labels_[static_cast<size_t>(target)]; }

  int64_t classes_, ignored_;
  ScratchVector<int32_t> labels_;
  ScratchVector<float> weights_;
};

// Writes the first two results, the loss and the total weight. log_probability(target, label) is
// asked for the targets that are not ignored.
template <typename LogProbability>
void write_losses(const KernelCall& call, const Targets& targets,
                  const LogProbability& log_probability) {
  const int64_t reduction = call.attrs.integer("reduction");
  auto* out = call.outputs[0].as<float>();
  auto* total_weight = call.outputs[1].as<float>();
  const auto pieces = static_cast<size_t>(targets.count() / elementwise_grain + 1);
  ScratchVector<double> losses(pieces), weights(pieces);
  call.pool.run_ranges(targets.count(), elementwise_grain, [&](int64_t begin, int64_t end) {
    const auto piece = static_cast<size_t>(begin / elementwise_grain);
    for (int64_t i = begin; i < end; ++i) {
      float loss = 0;
      if (!targets.ignored(i)) {
        const int64_t label = targets.label(i);
        loss = -log_probability(i, label) * targets.weight(label);
        weights[piece] += static_cast<double>(targets.weight(label));
      }
      losses[piece] += static_cast<double>(loss);
      if (reduction == none) out[i] = loss;
    }
  });
  if (reduction == none) {
    *total_weight = 0;
    return;
  }
  const double loss = std::accumulate(losses.begin(), losses.end(), 0.0);
  const double weight = std::accumulate(weights.begin(), weights.end(), 0.0);
  *out = static_cast<float>(reduction == mean ? loss / weight : loss);
  *total_weight = static_cast<float>(weight);
}

// The gradient of one target's log probability, from operands 0 and `total_weight` of a backward.
class Shares {
 public:
  Shares(const KernelCall& call, const Targets& targets, size_t total_weight)
      : targets_(targets),
        grad_(call.inputs[0]),
        total_weight_(*call.inputs[total_weight].as<float>()),
        reduction_(call.attrs.integer("reduction")) {}

  float operator()(int64_t target, int64_t label) const {
    const float share = targets_.weight(label) * grad_[reduction_ == none ? target : 0];
    return -(reduction_ == mean ? share / total_weight_ : share);
  }

 private:
  const Targets& targets_;
  Elements<float> grad_;
  float total_weight_;
  int64_t reduction_;
};

// The scores, operand `self`, and what follows them are checked; the target's shape comes back.
Shape check_operands(const OpView& op, size_t self);
// The same of a backward's "grad_output, self, target, weight?, total_weight".
Shape check_gradient_operands(const OpView& op);

// Of "self, target, weight?": all reductions, with and without weights and a label to ignore; of
// images or of rows.
std::vector<Sample> samples(bool spatial);
// The same with the arriving gradient before and the total weight after them.
std::vector<Sample> gradient_samples(bool spatial);

}  // namespace tessera::class_targets
