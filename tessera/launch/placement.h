// Which instance runs where, and which replicas are its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// One process of the program.
struct Instance {
  int64_t index = 0;
  std::string host;
  int64_t index_on_host = 0;
  int64_t instances_on_host = 1;
  int64_t first_replica = 0;
  int64_t replicas = 1;

  bool operator==(const Instance&) const = default;
};

// Instances fill host after host; where they cannot be spread evenly, the first hosts have one
// more. Each has as many replicas. Error where that cannot be, or where a host would have nothing
// to do.
std::vector<Instance> place_instances(const std::vector<std::string>& hosts, int64_t instances,
                                      int64_t replicas);

}  // namespace tessera
