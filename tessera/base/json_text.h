// Text as JSON has it.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// In double quotes, with what must be escaped. Graphviz reads it too.
std::string json_string(std::string_view text);

}  // namespace tessera
