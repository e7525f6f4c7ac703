// The command that starts all instances, for the releases of Open MPI: what differs between them
// is decided here and nowhere else.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/launch/instance_environment.h"

namespace tessera {

// The first number of Open MPI's release, from what `mpirun --version` prints; 0 for others.
int open_mpi_release(std::string_view version_text);

// All that a start is made of.
struct Launch {
  LaunchOptions options;
  std::vector<Instance> instances;
  int64_t cpus = 1;                     // of this host
  std::vector<std::string> program;     // and its arguments
  std::string supervisor;               // this program, with its path
  std::vector<std::string> forwarded;   // names of variables
  bool threads_in_environment = false;  // TESSERA_NUM_THREADS is set by the user
  bool is_root = false;
  int open_mpi = 4;
};

// Whether instances run on other hosts than this one.
bool leaves_this_host(const Launch& launch);

// Whether we bind instances to cores: the user may have asked mpirun to.
bool binds_to_cores(const LaunchOptions& options);

// What the environment of an instance gets.
Variables variables_of(const Launch& launch, const Instance& instance);

// Who reads what the command writes: a terminal, where it is pasted, or poprun.
enum class Reader { anybody, poprun };

// `mpirun`, its arguments, and the supervisors with the program.
std::vector<std::string> mpirun_command(const Launch& launch, Reader reader);

}  // namespace tessera
