// Options from JSON: {"name.of.setter": argument or list of arguments}.
#pragma once

#include <string_view>

namespace tessera {

class Options;

void set_from_json(Options& options, std::string_view json);

}  // namespace tessera
