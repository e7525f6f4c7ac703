// A process that becomes another program.
#pragma once

#include <string>
#include <vector>

namespace tessera {

// Looks the first word up on PATH; the others are its arguments. Returns only where that fails,
// with errno.
int exec_program(const std::vector<std::string>& words);

}  // namespace tessera
