// Decides how states take their new values: made in the state's own memory where nothing reads the
// old value afterwards, else copied there by a call at the end of the phase.
#pragma once

#include "tessera/backend/cpu/lower/draft.h"

namespace tessera::cpu {

void settle_states(Draft& draft);

}  // namespace tessera::cpu
