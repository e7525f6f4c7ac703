// What the operator table knows about a fused body (ir/fused_body.h): which operators may be steps,
// what types and what price they have.
#pragma once

#include <span>
#include <vector>

#include "tessera/ir/fused_body.h"
#include "tessera/ops/op_def.h"

namespace tessera {

// Whether uses of a row can be steps: one result from a fixed number of operands, element by
// element.
bool can_be_step(const OpDef& row);

// Whether a use of a row does, itself, by a step of its body or by how it rounds its partials.
bool reads_random_state(const OpDef& row, const Attrs& attrs);

// The attributes of all steps complete. Error where a step's operator is none that can be a step,
// or has another number of operands.
FusedBody completed(FusedBody body);

// Of a step of a complete body.
const OpDef& row_of(const BodyStep& step);

// The types of a step's arguments in a body with operands of these types.
std::vector<DType> argument_types(const FusedBody& body, const BodyStep& step,
                                  std::span<const DType> operands);

// Of the results of a complete body; sums by the rule of the sum's row. Error where the rule of a
// step refuses its arguments or gives another type than the body says, an operand does not exist,
// or a step is not of the common shape.
std::vector<TensorType> result_types(const FusedBody& body, std::span<const TensorType> operands);

// By the row's own price.
double flops_per_element(const BodyStep& step);

// The row that sums are uses of, and its attributes for one result.
const OpDef& sum_row();
Attrs sum_attributes(const BodyResult& result);

}  // namespace tessera
