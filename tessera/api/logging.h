// Which messages are shown.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

// By name or by number: TRACE (0), DEBUG (1), INFO (2), WARN (3, the default), ERR (4), OFF (6).
// Value Error for anything else.
void setLogLevel(std::string_view level);
void setLogLevel(int64_t level);

}  // namespace tessera
