// Who we are, for files that others may read.
#pragma once

#include <string_view>

namespace tessera {

std::string_view poptorch_version();  // "3.4.0+tessera.0.1.0": PopTorch's interface, and our own

}  // namespace tessera
