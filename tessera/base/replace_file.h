// Files that are whole or not there: whatever happens while one is written, what stood in its place
// before stays.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tessera {

// Written beside the place and moved there. False, with errno, where that failed; nothing is left
// behind then. A link that lies there is replaced, not followed. Pipes, devices and names in /dev,
// such as /dev/stdout, are written to instead.
bool replace_file(const std::string& path, std::string_view bytes);

// Whether the file is there when the machine fails right afterwards.
enum class Sync { no, yes };

// The same for bytes that lie in several places, in their order.
bool replace_file(const std::string& path, std::span<const std::string_view> pieces, Sync sync);

}  // namespace tessera
