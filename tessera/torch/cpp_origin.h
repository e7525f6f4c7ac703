// Where a C++ program is, for models written in C++: file and line of the innermost frame outside
// of libtorch and Tessera, as far as the program's debug information tells (-g1 is enough).
#pragma once

#include "tessera/ir/graph.h"

namespace tessera {

Origin cpp_origin();

}  // namespace tessera
