// What all replicas of a program compute together. Each of them runs the same row at the same
// place; a program that runs alone is its own only replica.
#include "tessera/base/error.h"
#include "tessera/ops/families.h"
#include "tessera/ops/row_parts.h"
#include "tessera/ops/rows.h"

namespace tessera {
namespace {

using namespace row_parts;

std::vector<TensorType> infer_all_reduce(const OpView& op) {
  check(op.type(0).dtype == DType::f32, ErrorKind::type, "all_reduce adds up f32, not {}",
        to_string(op.type(0)));
  return {op.type(0)};
}

Cost cost_all_reduce(const OpView& op, std::span<const TensorType>) {
  return CollectiveCost{bytes(op.type(0))};
}

void run_all_reduce(const KernelCall& call) {
  rows::map_equal_types<float, float, 1>(call, [](float x) { return x; });
  if (!call.replicas || call.replicas->size() == 1) return;
  const std::span<float> values(call.outputs[0].as<float>(),
                                static_cast<size_t>(call.outputs[0].numel()));
  call.replicas->all_reduce(values, values);
  if (!call.attrs.flag("mean")) return;
  const float share = 1.0F / static_cast<float>(call.replicas->size());
  for (float& value : values) value *= share;
}

std::vector<OpDef> make_rows() {
  return {{.name = "all_reduce",
           .operands = "self",
           .results = "out",
           .doc = "The sum of self, or its mean, over all replicas, in the order of their ranks.",
           .kind = Kind::collective,
           .attrs = {flag("mean", false)},
           .traits = {.in_place = {{0, 0}}},
           .infer = infer_all_reduce,
           .cost = cost_all_reduce,
           .cpu = run_all_reduce,
           .samples = {Sample{{reals({3, 5})}}, Sample{{reals({})}, {{"mean", true}}}}}};
}

}  // namespace

std::span<const OpDef> families::collective() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
