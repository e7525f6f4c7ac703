// The picture of a start: which instances, with which replicas, on which host.
#pragma once

#include <string>

#include "tessera/launch/mpirun_command.h"

namespace tessera {

// `cores` are those of this host, of which the instances here have their shares. `threads` is what
// the user's environment says; empty where it says nothing.
std::string topology_table(const Launch& launch, const std::vector<int>& cores,
                           const std::string& threads);

}  // namespace tessera
