// Lets a result use the memory of an operand that nothing reads afterwards.
#pragma once

#include "tessera/backend/cpu/lower/draft.h"

namespace tessera::cpu {

// Whether `call` may write result number `result` over the memory of `home` although it reads it.
// True also where it does not read it.
bool may_write_over(const Draft& draft, const DraftCall& call, size_t result, BlockId home);

// Only for results and operands in the arena; settle_states() decides for states.
void reuse_dying_operands(Draft& draft);

}  // namespace tessera::cpu
