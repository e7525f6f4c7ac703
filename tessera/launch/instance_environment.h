// What an instance finds in its environment: who it is among the others, and what the user's own
// environment says to programs of this kind.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/launch/launch_options.h"
#include "tessera/launch/placement.h"

namespace tessera {

using Variables = std::vector<std::pair<std::string, std::string>>;

// What popdist reads (tessera/api/popdist.h).
Variables popdist_variables(const Instance& instance, int64_t instances, int64_t ipus_per_replica);

// The same for all instances: what options of poprun say.
Variables common_variables(const LaunchOptions& options);

// How many threads an instance has: as asked, else its share of so many CPUs.
int64_t threads_of(const LaunchOptions& options, const Instance& instance, int64_t cpus);

// Of the names in an environment, those that other hosts must know too.
std::vector<std::string> forwarded_names(const char* const* environment);

}  // namespace tessera
