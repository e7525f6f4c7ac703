// What the environment says about compiling and running. Nothing below asks it: whoever talks to
// the user does so here, once for every program, and lets what the user says elsewhere go before
// it.
#pragma once

#include <string>

#include "tessera/runtime/compile.h"

namespace tessera {

// A variable that is not set, or empty, says nothing. Error where one says what it cannot mean.

// TESSERA_CPU_LEVEL; else what this machine has.
CpuLevel cpu_level_of_environment();

// TESSERA_NUM_THREADS; else usable_cpus().
int threads_of_environment();

// The level, the threads, TESSERA_PRECISION, TESSERA_AUTOTUNE, TESSERA_DISABLE_KERNELS,
// TESSERA_DISABLE_PASSES and POPTORCH_MAX_GRAPH_LEN; else as in CompileOptions.
CompileOptions compile_options_of_environment();

// TESSERA_TRACE; empty where nothing is to be traced.
std::string trace_path_of_environment();

}  // namespace tessera
