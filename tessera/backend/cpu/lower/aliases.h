// Makes the draft: every value becomes a block or, for a view, a geometry over one. A view of a
// view that no strides can say gets its operand copied into dense memory first.
#pragma once

#include "tessera/backend/cpu/lower/draft.h"
#include "tessera/backend/cpu/lower/schedule.h"

namespace tessera::cpu {

Draft resolve_aliases(std::shared_ptr<const Graph> graph, const Schedule& schedule);

}  // namespace tessera::cpu
