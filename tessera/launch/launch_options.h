// What poprun is told: plain values, made of the options that were given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/launch/option_words.h"

namespace tessera {

struct LaunchOptions {
  int64_t replicas = 1;
  int64_t instances = 1;
  int64_t ipus_per_replica = 1;
  std::vector<std::string> hosts;                  // none: this one
  std::optional<int64_t> threads_per_instance;     // none: its share of the CPUs
  std::optional<std::string> instance_timeout;     // seconds, as they were written
  std::optional<int64_t> only_output_from;         // an instance; none: of all
  std::string cache_path;                          // empty: none
  std::vector<std::string> mpi_global, mpi_local;  // arguments for mpirun
  bool offline = false;
  bool print_topology = true;
  bool dry_run = false;
  int verbosity = 0;
  std::vector<std::string> without_effect;  // options that are accepted, with their dashes
};

// Error where a value is none that its option takes, or where two contradict each other.
LaunchOptions options_of(const std::vector<GivenOption>& given);

}  // namespace tessera
