// Proves a Plan before it runs. The plan is followed through memory without computing anything:
// which bytes hold which value of the graph, written in which layout. Promised then are
//
// - a value is written before it is read, in the phase in which it is read, and nothing has taken
//   its place in between: neither another value nor a kernel's workspace;
// - reader and writer agree where each element lies;
// - a call reads the operands and writes the results of its node, all elements of each;
// - a result lies over an operand only where the operator's row allows it;
// - outputs are there at the end of a micro-batch, states at the end of each phase, where they are
//   looked for;
// - nothing reaches outside its buffer, and no buffer outside its memory.
//
// What kernels do with the places they are given is not proved: see referee.h.
#pragma once

#include <optional>
#include <string>

#include "tessera/backend/cpu/plan.h"

namespace tessera::cpu {

// The first promise that does not hold; nothing where all do.
std::optional<std::string> find_broken_promise(const Plan& plan);

// An internal error where one does not hold.
void verify(const Plan& plan);

}  // namespace tessera::cpu
