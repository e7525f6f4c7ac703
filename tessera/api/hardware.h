// The devices that programs run on: virtual IPUs. There are 16 unless TESSERA_NUM_IPUS says
// otherwise. While POPTORCH_IPU_MODEL or POPTORCH_SMALL_IPU_MODEL asks for the model of an IPU,
// there is no hardware.
#pragma once

#include <cstdint>

#include "tessera/device/topology.h"

namespace tessera {

// Whether a device of that many IPUs exists; it may be busy.
bool ipuHardwareIsAvailable(int64_t num_ipus = 1);

// The generation of the hardware: 2. Assertion Error where there is none.
int64_t ipuHardwareVersion();

}  // namespace tessera
