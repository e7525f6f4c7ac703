// Files that are whole or not there: whatever happens while one is written, what stood in its place
// before stays.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Written beside the place and moved there. False, with errno, where that failed; nothing is left
// behind then. A link that lies there is replaced, not followed. Pipes, devices and names in /dev,
// such as /dev/stdout, are written to instead.
bool replace_file(const std::string& path, std::string_view bytes);

}  // namespace tessera
