// What the supervisor of an instance must know. poprun writes it as arguments of its own program,
// which mpirun starts on every host: poprun --as-instance ... program arguments
#pragma once

#include <string>
#include <vector>

#include "tessera/launch/placement.h"

namespace tessera {

struct SupervisorJob {
  static constexpr int64_t none = -1;

  int64_t index = none;  // none: its rank in mpirun's job, where one command starts all instances
  std::vector<std::string> hosts;
  int64_t instances = 1;
  int64_t replicas = 1;
  int64_t ipus_per_replica = 1;
  int64_t output_from = none;  // the one instance whose output is shown; none: all are
  bool binds = true;           // to its share of the cores
  bool has_poprun = false;     // which waits for packets; else output goes where ours goes
  std::vector<std::string> program;

  bool operator==(const SupervisorJob&) const = default;
};

// The first argument, by which the program knows that it is a supervisor.
extern const char* const supervisor_word;

// With the supervisor_word first, and the program last.
std::vector<std::string> words_of(const SupervisorJob& job);

// The other way round. Error where the words are none of words_of().
SupervisorJob supervisor_job(const std::vector<std::string>& words);

}  // namespace tessera
