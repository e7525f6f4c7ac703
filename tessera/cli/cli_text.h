// How our programs say in one line what went wrong.
#pragma once

#include <string>

#include "tessera/base/error.h"

namespace tessera {

// The sentence, and the innermost thing that was being done.
std::string one_line(const Error& error);

// What the parser of arguments says, without line ends and the last full stop.
std::string one_sentence(std::string text);

}  // namespace tessera
