// Optimisers' rows whose gradient is a product of two matrices that is never stored: a linear
// layer's weights. Each is made from the row it is a form of, `<name>_of_product`: the same
// operands with `grad` as the first factor, and the second factor after all others.
#pragma once

#include "tessera/ops/optimizer_parts.h"

namespace tessera::optimizer_parts {

// The row for updates by products; null where there is none.
const OpDef* update_of_product(const OpDef& row);

// What the rows do, given the row they are a form of.
OpDef product_row(const OpDef& base);
std::vector<TensorType> infer_of_product(const OpDef& base, const OpView& op);
Cost cost_of_product(const OpDef& base, const OpView& op, std::span<const TensorType> results);
void run_of_product(const OpDef& base, const KernelCall& call);

template <OpDef (*base_row)()>
OpDef of_product() {
  static const OpDef base = base_row();
  OpDef row = product_row(base);
  row.infer = [](const OpView& op) { return infer_of_product(base, op); };
  row.cost = [](const OpView& op, std::span<const TensorType> results) {
    return cost_of_product(base, op, results);
  };
  row.cpu = [](const KernelCall& call) { run_of_product(base, call); };
  return row;
}

}  // namespace tessera::optimizer_parts
