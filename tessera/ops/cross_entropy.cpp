// Log-softmax and negative log likelihood as one row: what the lowering makes of the two. Of the
// log probabilities only one number for each target is kept, the logarithm of the sum; the scores
// and it give all of them again.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/ops/class_targets.h"
#include "tessera/ops/families.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/row_parts.h"

namespace tessera::families {
namespace {

using namespace class_targets;
using namespace row_parts;

constexpr int64_t tile_targets = 64;  // neighbours in an image that are worked on together

// The scores of a few neighbouring targets, as dense [classes, columns].
class Tile {
 public:
  Tile(const OperandReader& reader, const Layout& layout, int64_t target, int64_t columns)
      : classes_(layout.classes), columns_(columns) {
    x_.reserve(static_cast<size_t>(classes_ * columns));
    if (layout.places == 1) {
      for (int64_t c = 0; c < classes_; c += OperandReader::block) {
        append(reader, layout.at(target, c), std::min(OperandReader::block, classes_ - c));
      }
    } else {
      for (int64_t c = 0; c < classes_; ++c) append(reader, layout.at(target, c), columns);
    }
  }

  float at(int64_t label, int64_t column) const {
    return x_[static_cast<size_t>(label * columns_ + column)];
  }
  float largest(int64_t column) const {
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t c = 0; c < classes_; ++c) {
      const float x = at(c, column);
      if (!(x <= largest)) largest = x;  // a NaN stays
    }
    return largest;
  }

 private:
  void append(const OperandReader& reader, int64_t begin, int64_t count) {
    alignas(64) std::byte scratch[OperandReader::scratch_bytes];
    const auto* from = reader.read_as<float>(begin, count, scratch);
    x_.insert(x_.end(), from, from + count);
  }

  int64_t classes_, columns_;
  ScratchVector<float> x_;
};

// Calls work(tile, its column, target) for every target.
template <typename Work>
void for_each_target(const KernelCall& call, const TensorView& scores, const Layout& layout,
                     const Work& work) {
  const OperandReader reader(scores, scores.sizes);
  const int64_t grain =
      std::max(tile_targets, elementwise_grain / std::max<int64_t>(1, layout.classes));
  call.pool.run_ranges(layout.targets(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const int64_t columns = std::min({tile_targets, end - i, layout.places - i % layout.places});
      const Tile tile(reader, layout, i, columns);
      for (int64_t k = 0; k < columns; ++k) work(tile, k, i + k);
      i += columns;
    }
  });
}

void run_forward(const KernelCall& call) {
  const Layout layout(call.inputs[0].sizes);
  const Targets targets(call, 1, 2, layout.classes);
  auto* log_sums = call.outputs[2].as<float>();
  ScratchVector<float> picked(static_cast<size_t>(layout.targets()));
  for_each_target(call, call.inputs[0], layout, [&](const Tile& x, int64_t k, int64_t i) {
    const float largest = x.largest(k);
    double sum = 0;
    for (int64_t c = 0; c < layout.classes; ++c) {
      sum += static_cast<double>(std::exp(x.at(c, k) - largest));
    }
    log_sums[i] = static_cast<float>(std::log(sum));
    if (targets.ignored(i)) return;
    picked[static_cast<size_t>(i)] = x.at(targets.label(i), k) - largest - log_sums[i];
  });
  write_losses(call, targets, [&](int64_t i, int64_t) { return picked[static_cast<size_t>(i)]; });
}

void run_backward(const KernelCall& call) {
  const Layout layout(call.inputs[1].sizes);
  const Targets targets(call, 2, 3, layout.classes);
  const Shares share_of(call, targets, 4);
  const bool has_sums = call.has_input(5);
  const Elements<float> log_sums(call.inputs[has_sums ? 5 : 4]);
  auto* out = call.outputs[0].as<float>();
  for_each_target(call, call.inputs[1], layout, [&](const Tile& x, int64_t k, int64_t i) {
    const int64_t label = targets.ignored(i) ? -1 : targets.label(i);
    const float share = label < 0 ? 0 : share_of(i, label);
    const float largest = has_sums ? x.largest(k) : 0, log_sum = has_sums ? log_sums[i] : 0;
    for (int64_t c = 0; c < layout.classes; ++c) {
      const float probability = std::exp(x.at(c, k) - largest - log_sum);
      out[layout.at(i, c)] = (c == label ? share : 0) - probability * share;
    }
  });
}

std::vector<TensorType> infer_forward(const OpView& op) {
  const Shape target = check_operands(op, 0);
  const DType dtype = op.type(0).dtype;
  return {{dtype, op.attrs().integer("reduction") == none ? target : Shape{}},
          {dtype, {}},
          {dtype, target}};
}

std::vector<TensorType> infer_backward(const OpView& op) {
  const Shape target = check_gradient_operands(op);
  OperandChecks(op, "cross_entropy_backward").floating(5, "log_sum", target);
  return {op.type(1)};
}

Cost forward_cost(const OpView& op, std::span<const TensorType>) {
  return ElementwiseCost{numel(op.shape(0)), 25};
}

Cost backward_cost(const OpView& op, std::span<const TensorType>) {
  return ElementwiseCost{numel(op.shape(1)), 25};
}

std::vector<Sample> forward_samples() {
  std::vector<Sample> all = samples(false);
  for (Sample& one : samples(true)) all.push_back(std::move(one));
  all.push_back({{reals({5}), integers({}, {0, 5})}});
  all.push_back({{reals({70, 1100}), integers({70}, {0, 1100})}});
  return all;
}

std::vector<Sample> backward_samples() {
  std::vector<Sample> all = gradient_samples(false);
  for (Sample& one : gradient_samples(true)) all.push_back(std::move(one));
  for (size_t i = 0; i < all.size(); i += 2) {
    all[i].operands.push_back(reals(all[i].operands[2].type.shape, {0, 1}));
  }
  return all;
}

}  // namespace

std::span<const OpDef> cross_entropy() {
  static const AttrSchema attrs = {integer("reduction", mean),
                                   large(integer("ignore_index", -100))};
  static const std::vector<OpDef> rows = {
      {.name = "cross_entropy",
       .operands = "self, target, weight?",
       .results = "output, total_weight, log_sum",
       .doc =
           "negative log likelihood of the softmax, and log(sum(exp(x - max(x)))) of each target",
       .kind = Kind::normalization,
       .attrs = attrs,
       .infer = infer_forward,
       .cost = forward_cost,
       .cpu = run_forward,
       .samples = forward_samples()},
      {.name = "cross_entropy_backward",
       .operands = "grad_output, self, target, weight?, total_weight, log_sum?",
       .results = "grad_input",
       .doc = "gradient of cross_entropy; without log_sum from the log probabilities as `self`",
       .kind = Kind::normalization,
       .attrs = attrs,
       .traits = {.in_place = {{0, 1}}},
       .infer = infer_backward,
       .cost = backward_cost,
       .cpu = run_backward,
       .samples = backward_samples()},
  };
  return rows;
}

}  // namespace tessera::families
