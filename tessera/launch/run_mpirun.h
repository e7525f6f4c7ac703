// Runs mpirun, shows what it writes, and passes on what this process is told.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/launch/failure.h"

namespace tessera {

struct MpirunResult {
  int status = 0;                  // of mpirun, as waitpid() has it
  std::optional<Failure> failure;  // of the instance that failed first
  int told_to_end = 0;             // the signal that ended the job; 0 where none did
  std::string own_messages;        // of mpirun and of ssh
};

// With `show_everything`, also mpirun's own words about how the job ended.
MpirunResult run_mpirun(const std::vector<std::string>& command, bool show_everything);

// What a command prints to stdout; empty where it cannot be run.
std::string output_of(const std::vector<std::string>& command);

}  // namespace tessera
