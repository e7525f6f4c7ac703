// The list of all passes, in the order in which a captured step goes through them.
#pragma once

#include <span>
#include <string_view>

#include "tessera/passes/pass.h"

namespace tessera {

std::span<const Pass> pipeline();

// The pass of that name; Error, with the names there are, where there is none.
const Pass& find_pass(std::string_view name);

}  // namespace tessera
