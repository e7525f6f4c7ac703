#include "tessera/launch/placement.h"

#include "tessera/base/error.h"

namespace tessera {

std::vector<Instance> place_instances(const std::vector<std::string>& hosts, int64_t instances,
                                      int64_t replicas) {
  const auto num_hosts = static_cast<int64_t>(hosts.size());
  TESSERA_INVARIANT(num_hosts > 0 && instances > 0, "{} instances, {} hosts", instances, num_hosts);
  check(replicas % instances == 0, ErrorKind::value,
        "--num-replicas {} cannot be divided evenly over {} instances; take a multiple of {}",
        replicas, instances, instances);
  check(
      instances >= num_hosts, ErrorKind::value,
      "--num-instances {} leaves some of the {} hosts without work; take {} or more, or name fewer "
      "hosts",
      instances, num_hosts, num_hosts);
  const int64_t each = replicas / instances;
  std::vector<Instance> placed;
  for (int64_t host = 0; host < num_hosts; ++host) {
    const int64_t here = instances / num_hosts + (host < instances % num_hosts ? 1 : 0);
    for (int64_t i = 0; i < here; ++i) {
      const auto index = static_cast<int64_t>(placed.size());
      placed.push_back({.index = index,
                        .host = hosts[static_cast<size_t>(host)],
                        .index_on_host = i,
                        .instances_on_host = here,
                        .first_replica = index * each,
                        .replicas = each});
    }
  }
  return placed;
}

}  // namespace tessera
