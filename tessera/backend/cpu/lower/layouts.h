// Chooses how every block lies in memory and adds the conversions that are left. Kernels that ask
// for a layout (convolutions, mostly) get it; what lies between them follows; the graph's edges are
// plain. A state takes the layout that its readers ask for, and keeps it for good.
#pragma once

#include "tessera/backend/cpu/lower/draft.h"

namespace tessera::cpu {

void choose_layouts(Draft& draft);

}  // namespace tessera::cpu
