// What a file of an executable holds, for people and for programs. Everything in the file is read
// and its checksums are compared, but nothing is compiled or run; opaque parts stay opaque.
#pragma once

#include <string>

namespace tessera {

// Error where it is no such file, or a damaged one.
std::string inspect(const std::string& path);
std::string inspect_as_json(const std::string& path);

}  // namespace tessera
