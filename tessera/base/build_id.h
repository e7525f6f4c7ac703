// Which build of this library is running: another for every change of its code, the same wherever
// one build is installed. What one build has made of a program is not what another would make.
#pragma once

#include <string>

namespace tessera {

// The identity that the linker gave the file we are in; its size and time where it gave none.
std::string build_id();

}  // namespace tessera
