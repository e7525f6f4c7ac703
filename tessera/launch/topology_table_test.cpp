#include "tessera/launch/topology_table.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

Launch launch_on(const std::vector<std::string>& hosts, int64_t instances, int64_t replicas) {
  Launch launch;
  launch.instances = place_instances(hosts, instances, replicas);
  launch.cpus = 4;
  return launch;
}

// spec: 8.3 print-topology
TEST(TopologyTable, ShowsWhoIsWhere) {
  Launch launch = launch_on({"localhost", "other"}, 3, 6);
  launch.options.ipus_per_replica = 2;
  EXPECT_EQ(topology_table(launch, {0, 1, 2, 3}, ""),
            "┌───────────┬──────────┬──────────┬──────┬─────────┬───────────┐\n"
            "│ host      │ instance │ replicas │ IPUs │ threads │ cores     │\n"
            "├───────────┼──────────┼──────────┼──────┼─────────┼───────────┤\n"
            "│ localhost │ 0        │ 0..1     │ 4    │ 2       │ 0-1       │\n"
            "│           │ 1        │ 2..3     │ 4    │ 2       │ 2-3       │\n"
            "├───────────┼──────────┼──────────┼──────┼─────────┼───────────┤\n"
            "│ other     │ 2        │ 4..5     │ 4    │ 4       │ its share │\n"
            "└───────────┴──────────┴──────────┴──────┴─────────┴───────────┘\n");
}

TEST(TopologyTable, SaysWhatTheUserSays) {
  Launch launch = launch_on({"localhost"}, 1, 1);
  launch.options.offline = true;
  launch.options.mpi_global = {"--bind-to", "core"};
  const std::string table = topology_table(launch, {0}, "7");
  EXPECT_NE(table.find("│ localhost │ 0        │ 0        │ none │ 7       │ any   │"),
            std::string::npos)
      << table;
}

}  // namespace
}  // namespace tessera
