// Calls that no static program can have because they ask for values, and the sentences that say so.
#pragma once

#include "tessera/base/error.h"
#include "tessera/ir/graph.h"
#include "tessera/torch/aten_call.h"

namespace tessera {

// Whether the call's results, or their shapes, are only known when the program runs.
bool depends_on_values(const AtenCall& call);

// False for an operator that gives numbers alone.
bool makes_tensor(const AtenCall& call);

// For an operator whose result has as many elements as values say.
Error shape_refusal(const AtenCall& call, const Origin& origin);

// For forward's look at a value.
Error value_refusal(const std::string& asked_by, const Origin& origin);
std::string asked_by(const AtenCall& call);  // as users write it

}  // namespace tessera
