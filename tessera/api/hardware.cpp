#include "tessera/api/hardware.h"

#include <cstdlib>
#include <string_view>

#include "tessera/base/error.h"

namespace tessera {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool switched_on(const char* name) {
  const std::string_view value = environment(name);
  return !value.empty() && value != "0";
}

bool uses_ipu_model() {
  return switched_on("POPTORCH_IPU_MODEL") || switched_on("POPTORCH_SMALL_IPU_MODEL");
}

}  // namespace

bool ipuHardwareIsAvailable(int64_t num_ipus) {
  return num_ipus >= 1 && num_ipus <= num_virtual_ipus() && !uses_ipu_model();
}

int64_t ipuHardwareVersion() {
  check(ipuHardwareIsAvailable(), ErrorKind::assertion,
        "there is no IPU hardware to ask for its version: {}",
        uses_ipu_model() ? "the environment asks for the IPU model" : "TESSERA_NUM_IPUS is 0");
  return IpuFacts().version;
}

}  // namespace tessera
