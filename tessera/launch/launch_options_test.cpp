#include "tessera/launch/launch_options.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using Words = std::vector<std::string>;

LaunchOptions options(const Words& arguments) {
  return options_of(read_option_words(arguments).given);
}

std::string message_of(const Words& arguments) {
  try {
    options(arguments);
  } catch (const Error& error) {
    return error.message();
  }
  return {};
}

// spec: 8.3 num-replicas, 8.3 num-instances, 8.3 ipus-per-replica, 8.3 host
TEST(LaunchOptions, AreWhatWasGiven) {
  const LaunchOptions none = options({});
  EXPECT_EQ(none.replicas, 1);
  EXPECT_EQ(none.instances, 1);
  EXPECT_EQ(none.ipus_per_replica, 1);
  EXPECT_TRUE(none.print_topology && !none.offline && !none.dry_run && none.hosts.empty());
  const LaunchOptions some =
      options({"--num-replicas=8", "--num-instances=4", "--ipus-per-replica", "2", "--host",
               "a,b[0-1]", "--print-topology", "no", "--offline-mode=1", "--threads-per-instance",
               "3", "--instance-timeout", "1.5", "--only-output-from-instance", "3", "--dry-run"});
  EXPECT_EQ(some.replicas, 8);
  EXPECT_EQ(some.instances, 4);
  EXPECT_EQ(some.ipus_per_replica, 2);
  EXPECT_EQ(some.hosts, (Words{"a", "b0", "b1"}));
  EXPECT_EQ(some.threads_per_instance, 3);
  EXPECT_EQ(some.instance_timeout, "1.5");
  EXPECT_EQ(some.only_output_from, 3);
  EXPECT_TRUE(!some.print_topology && some.offline && some.dry_run);
}

TEST(LaunchOptions, EachHostHasAnInstance) {
  EXPECT_EQ(options({"--host", "a,b"}).instances, 2);
  EXPECT_EQ(options({"--host", "a,b", "--num-instances", "4"}).instances, 4);
}

// spec: 8.3 mpi-local-args, 8.3 mpi-global-args
TEST(LaunchOptions, ArgumentsOfMpirunAddUp) {
  const LaunchOptions both =
      options({"--mpi-global-args", "--mca a 'b c'", "--mpi-global-args=--tag-output",
               "--mpi-local-args= -x PATH -x A=1 "});
  EXPECT_EQ(both.mpi_global, (Words{"--mca", "a", "b c", "--tag-output"}));
  EXPECT_EQ(both.mpi_local, (Words{"-x", "PATH", "-x", "A=1"}));
}

// spec: 8.3 vipu-partition, 8.3 vipu-server, 8.3 vipu-allocation, 8.3 vipu-cluster
// spec: 8.3 num-ilds, 8.3 sync-type, 8.3 numa-aware
TEST(LaunchOptions, SomeAreAcceptedAndChecked) {
  const LaunchOptions accepted = options({"--vipu-partition",
                                          "p",
                                          "--vipu-server-host",
                                          "h",
                                          "--vipu-server-port",
                                          "8090",
                                          "--vipu-server-timeout",
                                          "120",
                                          "--vipu-allocation",
                                          "a",
                                          "--vipu-cluster",
                                          "c",
                                          "--vipu-partition-attempts",
                                          "2",
                                          "--num-ilds",
                                          "1",
                                          "--sync-type",
                                          "x",
                                          "--numa-aware",
                                          "1",
                                          "--reset-partition=no",
                                          "--update-partition=yes",
                                          "--remove-partition=0"});
  EXPECT_EQ(accepted.without_effect.size(), 13u);
  EXPECT_EQ(message_of({"--vipu-server-port", "70000"}),
            "--vipu-server-port must be a whole number from 1 to 65535, got '70000'");
  EXPECT_EQ(message_of({"--vipu-server-timeout", "soon"}),
            "--vipu-server-timeout must be a number of seconds above 0, got 'soon'");
  EXPECT_EQ(message_of({"--reset-partition=maybe"}),
            "--reset-partition must be yes or no, got 'maybe'");
  EXPECT_EQ(message_of({"--vipu-partition="}), "--vipu-partition needs a value: NAME");
}

TEST(LaunchOptions, NumbersAreChecked) {
  for (const char* text : {"0", "-1", "x", "", "1.5", "99999999999999999999", "2 "}) {
    EXPECT_EQ(
        message_of({"--num-instances", text}),
        fmt::format("--num-instances must be a whole number from 1 to 65536, got '{}'", text));
  }
  for (const char* text : {"0", "-1", "x", "", "1s", "nan", "inf"}) {
    EXPECT_NE(message_of({"--instance-timeout", text}), "") << text;
  }
  EXPECT_EQ(message_of({"--only-output-from-instance", "1"}),
            "--only-output-from-instance 1 is none of 1 instances, which are counted from 0");
}

}  // namespace
}  // namespace tessera
