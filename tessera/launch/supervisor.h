// The process that mpirun starts for an instance. It gives the program its part of the cores and
// its environment, passes signals on, says in one sentence how the program failed, and leaves none
// of its processes behind.
#pragma once

#include <chrono>
#include <csignal>

#include "tessera/launch/supervisor_job.h"

namespace tessera {

// By this signal poprun lets all supervisors end their programs, because one failed or because it
// was told to end. mpirun passes it on; by SIGTERM it would kill them moments later.
constexpr int order_to_end = SIGALRM;

// How long a program that is told to end may take.
constexpr std::chrono::seconds time_to_end{5};

// Runs the program, and returns the exit code for the process.
int supervise(const SupervisorJob& job);

}  // namespace tessera
