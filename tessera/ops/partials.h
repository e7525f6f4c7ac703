// What the sums of a contraction are kept in (kernels/partials.h), as attributes of its node:
// `partials`, floats where it is left out, and for halves that are rounded by chance
// `rounding_key`. Contractions have them, and composites that pass them on to the contractions
// that they are made of.
//
// In a captured graph a node of halves without `partials` leaves it to the program's options
// (passes/compute_in_single.h).
#pragma once

#include <optional>

#include "tessera/kernels/partials.h"
#include "tessera/ops/op_def.h"

namespace tessera {

// What rows add to their attributes.
AttrSchema partials_schema();

// Whether a row's sums may be kept in halves.
bool has_partials(const OpDef& row);

// Whether a node is a convolution or one of its gradients: nodes with partials are that, or
// products of matrices.
bool is_convolution(const Graph& graph, const Node& node);

// What a node says; nothing where it was left out.
std::optional<DType> partials_type(const Attrs& attrs);
bool sums_in_halves(const Attrs& attrs);
bool rounds_partials_by_chance(const Attrs& attrs);

void set_partials(Attrs& attrs, DType type, std::optional<int64_t> rounding_key = std::nullopt);
void leave_out_partials(Attrs& attrs);

// Those of the attributes, for a part of a composite; rounded by chances of its own.
Attrs partials_of_part(const Attrs& attrs, int64_t part = 0);
// As many keys belong to one node.
constexpr int64_t rounding_keys_of_node = 2;

// Error where they are none that a rule knows, or the numbers are no floats.
void check_partials(const OpView& op);

kernels::Partials partials_of(const KernelCall& call);

}  // namespace tessera
