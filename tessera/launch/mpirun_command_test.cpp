#include "tessera/launch/mpirun_command.h"

#include <gtest/gtest.h>

#include "tessera/launch/shell_words.h"

namespace tessera {
namespace {

Launch launch_of(const std::vector<std::string>& arguments, int open_mpi = 4) {
  const OptionWords words = read_option_words(arguments);
  Launch launch;
  launch.options = options_of(words.given);
  const std::vector<std::string> here = {"localhost"};
  launch.instances = place_instances(launch.options.hosts.empty() ? here : launch.options.hosts,
                                     launch.options.instances, launch.options.replicas);
  launch.cpus = 8;
  launch.program = words.program;
  launch.supervisor = "/bin/poprun";
  launch.forwarded = {"PATH", "TESSERA_TRACE"};
  launch.open_mpi = open_mpi;
  return launch;
}

std::string command(const std::vector<std::string>& arguments, int open_mpi = 4) {
  return shell_quoted(mpirun_command(launch_of(arguments, open_mpi), Reader::anybody));
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(MpirunCommand, KnowsTheReleases) {
  EXPECT_EQ(open_mpi_release("mpirun (Open MPI) 4.1.4\n\nReport bugs to"), 4);
  EXPECT_EQ(open_mpi_release("mpirun (Open MPI) 5.0.7\n"), 5);
  EXPECT_EQ(open_mpi_release("HYDRA build details:\n    Version: 4.0.2"), 0);
  EXPECT_EQ(open_mpi_release(""), 0);
}

// spec: 8.2 mpirun
TEST(MpirunCommand, StartsOneInstanceAfterTheOther) {
  EXPECT_EQ(
      command({"--num-instances", "2", "--num-replicas", "4", "sh", "-c", "exit 3"}),
      "mpirun --tag-output --bind-to none --oversubscribe "
      "-np 1 -x POPDIST_NUM_TOTAL_REPLICAS=4 -x POPDIST_NUM_IPUS_PER_REPLICA=1 "
      "-x POPDIST_NUM_LOCAL_REPLICAS=2 -x POPDIST_UNIFORM_REPLICAS_PER_INSTANCE=1 "
      "-x POPDIST_REPLICA_INDEX_OFFSET=0 -x POPDIST_LOCAL_INSTANCE_INDEX=0 "
      "-x TESSERA_NUM_THREADS=4 -x PATH -x TESSERA_TRACE "
      "/bin/poprun --as-instance index=0 hosts=localhost instances=2 replicas=4 ipus=1 output=-1 "
      "bind=1 packets=0 sh -c 'exit 3' : "
      "-np 1 -x POPDIST_NUM_TOTAL_REPLICAS=4 -x POPDIST_NUM_IPUS_PER_REPLICA=1 "
      "-x POPDIST_NUM_LOCAL_REPLICAS=2 -x POPDIST_UNIFORM_REPLICAS_PER_INSTANCE=1 "
      "-x POPDIST_REPLICA_INDEX_OFFSET=2 -x POPDIST_LOCAL_INSTANCE_INDEX=1 "
      "-x TESSERA_NUM_THREADS=4 -x PATH -x TESSERA_TRACE "
      "/bin/poprun --as-instance index=1 hosts=localhost instances=2 replicas=4 ipus=1 output=-1 "
      "bind=1 packets=0 sh -c 'exit 3'");
}

TEST(MpirunCommand, StartsAllAtOnceWithOpenMpi5) {
  EXPECT_EQ(command({"--num-instances", "2", "--num-replicas", "2", "p"}, 5),
            "mpirun --tag-output --bind-to none --map-by slot:OVERSUBSCRIBE "
            "-np 2 -x POPDIST_NUM_TOTAL_REPLICAS=2 -x POPDIST_NUM_IPUS_PER_REPLICA=1 "
            "-x POPDIST_NUM_LOCAL_REPLICAS=1 -x POPDIST_UNIFORM_REPLICAS_PER_INSTANCE=1 "
            "-x TESSERA_NUM_THREADS=4 -x PATH -x TESSERA_TRACE "
            "/bin/poprun --as-instance index=-1 hosts=localhost instances=2 replicas=2 ipus=1 "
            "output=-1 bind=1 packets=0 p");
}

// spec: 8.3 host
TEST(MpirunCommand, NamesOtherHosts) {
  const std::vector<std::string> arguments = {
      "--host", "a,b", "--num-instances", "3", "--num-replicas", "3", "p"};
  const std::string four = command(arguments);
  EXPECT_TRUE(has(four, "--mca plm_rsh_args '-o ConnectTimeout=10 -o BatchMode=yes'")) << four;
  EXPECT_TRUE(has(four, "-np 1 --host a ") && has(four, "-np 1 --host b ")) << four;
  const std::string five = command(arguments, 5);
  EXPECT_TRUE(has(five, "--prtemca plm_ssh_args '-o ConnectTimeout=10 -o BatchMode=yes'")) << five;
  EXPECT_TRUE(has(five, "--host a:2,b:1 -np 3 ")) << five;
  EXPECT_FALSE(has(command({"--host", "localhost", "p"}), "--host"));
  EXPECT_FALSE(has(command({"--host", "a", "--mpi-global-args", "--mca plm_rsh_args -v", "p"}),
                   "ConnectTimeout"));
}

// spec: 8.3 mpi-local-args, 8.3 mpi-global-args, 8.3 allow-run-as-root
TEST(MpirunCommand, PassesArgumentsOn) {
  const std::string both = command(
      {"--mpi-global-args", "--tag-output --allow-run-as-root --mca a 'b c'", "--mpi-local-args",
       "-x PATH -x TESSERA_NUM_THREADS=7 -x POPDIST_NUM_LOCAL_REPLICAS=9", "p"});
  EXPECT_TRUE(
      both.starts_with("mpirun --tag-output --bind-to none --oversubscribe --mca a 'b c' "
                       "-np 1 -x PATH -x TESSERA_NUM_THREADS=7 "
                       "-x POPDIST_NUM_LOCAL_REPLICAS=9 -x POPDIST_NUM_TOTAL_REPLICAS=1 "))
      << both;
  EXPECT_FALSE(has(both, "TESSERA_NUM_THREADS=8") || has(both, "--allow-run-as-root")) << both;
  EXPECT_TRUE(has(both, "-x POPDIST_NUM_LOCAL_REPLICAS=1 ")) << both;  // ours comes later
  Launch as_root = launch_of({"p"});
  as_root.is_root = true;
  EXPECT_TRUE(
      has(shell_quoted(mpirun_command(as_root, Reader::anybody)), " --allow-run-as-root -np 1"));
}

TEST(MpirunCommand, LeavesBindingToWhoAsksForIt) {
  const std::string bound = command({"--mpi-global-args=--bind-to core", "p"});
  EXPECT_TRUE(has(bound, "--bind-to core") && has(bound, "bind=0")) << bound;
  EXPECT_FALSE(has(bound, "--bind-to none")) << bound;
  const std::string mapped = command({"--mpi-global-args=--map-by node", "p"}, 5);
  EXPECT_FALSE(has(mapped, "OVERSUBSCRIBE")) << mapped;
}

TEST(MpirunCommand, InstancesThatShareACoreDoNotSpin) {
  const std::string crowded = command({"--num-instances", "9", "--num-replicas", "9", "p"});
  EXPECT_TRUE(has(crowded, " --oversubscribe --mca mpi_yield_when_idle 1 -np 1 ")) << crowded;
  EXPECT_FALSE(has(command({"--num-instances", "8", "--num-replicas", "8", "p"}), "idle"));
}

TEST(MpirunCommand, TheUsersThreadsStay) {
  Launch launch = launch_of({"p"});
  launch.threads_in_environment = true;
  launch.forwarded = {"TESSERA_NUM_THREADS"};
  EXPECT_TRUE(
      has(shell_quoted(mpirun_command(launch, Reader::anybody)), "-x TESSERA_NUM_THREADS /bin"));
  launch.options.threads_per_instance = 3;
  EXPECT_TRUE(
      has(shell_quoted(mpirun_command(launch, Reader::anybody)), "-x TESSERA_NUM_THREADS=3 /bin"));
}

}  // namespace
}  // namespace tessera
