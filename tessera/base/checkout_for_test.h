// Where the sources are that a test program was built from; defined by the build.
#pragma once

#include <filesystem>

namespace tessera {

std::filesystem::path source_folder();

}  // namespace tessera
