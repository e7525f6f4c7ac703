// What the environment says about compiling. compile() itself never looks there: whoever talks to
// the user asks here, once for every program, and lets what the user says elsewhere go before it.
#pragma once

#include "tessera/runtime/compile.h"

namespace tessera {

// By TESSERA_CPU_LEVEL, TESSERA_PRECISION, TESSERA_AUTOTUNE, TESSERA_DISABLE_KERNELS and
// TESSERA_DISABLE_PASSES; what is not set, or empty, is as in CompileOptions. Error where one of
// them says what it cannot mean.
CompileOptions compile_options_of_environment();

}  // namespace tessera
