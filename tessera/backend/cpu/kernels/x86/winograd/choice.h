// Which Winograd convolution is the fastest for a shape, by counting what each would do. The
// numbers were fitted to measurements beside oneDNN's direct kernels on the same layouts.
#pragma once

#include "tessera/backend/cpu/kernels/x86/winograd/tiles.h"

namespace tessera::cpu {

// 4, 2, or 0 where a direct convolution is better. `precise` forbids 4.
int winograd_tile(const WinogradShape& shape, bool precise);

}  // namespace tessera::cpu
