#include "tessera/files/versions.h"

namespace tessera {

std::string_view poptorch_version() { return TESSERA_POPTORCH_VERSION; }

}  // namespace tessera
