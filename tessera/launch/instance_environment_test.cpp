#include "tessera/launch/instance_environment.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

// spec: 8.2 environment
TEST(InstanceEnvironment, SaysWhoTheInstanceIs) {
  const Instance third = place_instances({"a", "b"}, 4, 8)[2];
  EXPECT_EQ(popdist_variables(third, 4, 2),
            (Variables{{"POPDIST_NUM_TOTAL_REPLICAS", "8"},
                       {"POPDIST_NUM_IPUS_PER_REPLICA", "2"},
                       {"POPDIST_NUM_LOCAL_REPLICAS", "2"},
                       {"POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", "1"},
                       {"POPDIST_REPLICA_INDEX_OFFSET", "4"},
                       {"POPDIST_LOCAL_INSTANCE_INDEX", "0"}}));
}

// spec: 8.3 executable-cache-path, 8.3 offline-mode
TEST(InstanceEnvironment, SaysWhatOptionsSay) {
  EXPECT_EQ(common_variables({}), Variables{});
  LaunchOptions options;
  options.instance_timeout = "2.5";
  options.cache_path = "/c";
  options.offline = true;
  EXPECT_EQ(common_variables(options), (Variables{{"POPTORCH_CACHE_DIR", "/c"},
                                                  {"TESSERA_INSTANCE_TIMEOUT", "2.5"},
                                                  {"TESSERA_OFFLINE", "1"}}));
}

TEST(InstanceEnvironment, InstancesShareTheCpus) {
  const Instance one_of_three = place_instances({"a"}, 3, 3)[1];
  EXPECT_EQ(threads_of({}, one_of_three, 8), 2);
  EXPECT_EQ(threads_of({}, one_of_three, 2), 1);
  LaunchOptions five;
  five.threads_per_instance = 5;
  EXPECT_EQ(threads_of(five, one_of_three, 8), 5);
}

// spec: 8.2 forwarded variables
TEST(InstanceEnvironment, SomeOfTheUsersIsForwarded) {
  const char* const environment[] = {
      "HOME=/x",      "TESSERA_TRACE=t", "PATH=/bin", "PYTHONPATHS=no",
      "POPLAR_X=a=b", "PYTHONPATH=",     nullptr};
  EXPECT_EQ(forwarded_names(environment),
            (std::vector<std::string>{"PATH", "POPLAR_X", "PYTHONPATH", "TESSERA_TRACE"}));
}

}  // namespace
}  // namespace tessera
