// Negative log likelihood: picks the entry of the target's class from log probabilities.
#include <algorithm>

#include "tessera/ops/class_targets.h"
#include "tessera/ops/families.h"
#include "tessera/ops/row_parts.h"
#include "tessera/ops/rows.h"

namespace tessera::families {
namespace {

using namespace class_targets;
using namespace row_parts;
using namespace rows;

void run_forward(const KernelCall& call) {
  const Layout layout(call.inputs[0].sizes);
  const Targets targets(call, 1, 2, layout.classes);
  const Elements<float> input(call.inputs[0]);
  write_losses(call, targets, [&](int64_t i, int64_t label) { return input[layout.at(i, label)]; });
}

void run_backward(const KernelCall& call) {
  const Layout layout(call.inputs[1].sizes);
  const Targets targets(call, 2, 3, layout.classes);
  const Shares share(call, targets, 4);
  auto* out = call.outputs[0].as<float>();
  call.pool.run_ranges(call.outputs[0].numel(), elementwise_grain, [&](int64_t begin, int64_t end) {
    std::fill(out + begin, out + end, 0.0F);
  });
  call.pool.run_ranges(layout.targets(), elementwise_grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (targets.ignored(i)) continue;
      const int64_t label = targets.label(i);
      out[layout.at(i, label)] = share(i, label);
    }
  });
}

std::vector<TensorType> infer_forward(const OpView& op) {
  const Shape target = check_operands(op, 0);
  const DType dtype = op.type(0).dtype;
  return {{dtype, op.attrs().integer("reduction") == none ? target : Shape{}}, {dtype, {}}};
}

std::vector<TensorType> infer_backward(const OpView& op) {
  check_gradient_operands(op);
  return {op.type(1)};
}

Cost forward_cost(const OpView& op, std::span<const TensorType>) {
  const int64_t targets = numel(op.shape(1));
  return GatherCost{targets, targets * 8};
}

Cost backward_cost(const OpView& op, std::span<const TensorType> results) {
  return GatherCost{numel(op.shape(2)), bytes(results[0])};
}

std::vector<Sample> samples_of(bool spatial, bool gradient) {
  auto all = gradient ? gradient_samples(spatial) : samples(spatial);
  if (spatial || gradient) return all;
  all.push_back({{reals({5}, {-4, 0}), integers({}, {0, 5})}});
  all.push_back({{reals({17000, 3}, {-4, 0}), integers({17000}, {0, 3})}});
  return all;
}

OpDef row(std::string name, bool spatial, bool gradient) {
  OpDef def;
  def.name = std::move(name);
  def.operands =
      gradient ? "grad_output, self, target, weight?, total_weight" : "self, target, weight?";
  def.results = gradient ? "grad_input" : "output, total_weight";
  def.doc = gradient ? "gradient of negative log likelihood"
                     : "negative log likelihood of the target classes";
  def.kind = gradient ? Kind::gather : Kind::reduction;
  def.attrs = {integer("reduction", mean), large(integer("ignore_index", -100))};
  def.aten = {{def.name, same_arguments(def)}};
  def.infer = gradient ? infer_backward : infer_forward;
  def.cost = gradient ? backward_cost : forward_cost;
  def.cpu = gradient ? run_backward : run_forward;
  def.samples = samples_of(spatial, gradient);
  return def;
}

}  // namespace

std::span<const OpDef> nll_loss() {
  static const std::vector<OpDef> rows = {
      row("nll_loss_forward", false, false),
      row("nll_loss_backward", false, true),
      row("nll_loss2d_forward", true, false),
      row("nll_loss2d_backward", true, true),
  };
  return rows;
}

}  // namespace tessera::families
