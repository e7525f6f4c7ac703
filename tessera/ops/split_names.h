// Cuts the short lists of the operator table ("self, other") into their names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Names without surrounding blanks; commas inside square brackets do not cut.
std::vector<std::string> split_names(std::string_view text, char separator = ',');

}  // namespace tessera
