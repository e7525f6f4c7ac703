// How our programs say in one line what went wrong, and what others wrote.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/error.h"

namespace tessera {

// The sentence, and the innermost thing that was being done.
std::string one_line(const Error& error);

// What the parser of arguments says, without line ends and the last full stop.
std::string one_sentence(std::string text);

// A text of a file: its control characters do not reach a terminal; a long one is cut.
std::string shown(std::string_view text);

}  // namespace tessera
