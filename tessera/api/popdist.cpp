#include "tessera/api/popdist.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "tessera/api/environment.h"
#include "tessera/api/hardware.h"
#include "tessera/api/instances.h"
#include "tessera/base/error.h"

namespace tessera {
namespace popdist {
namespace {

constexpr const char* total_variable = "POPDIST_NUM_TOTAL_REPLICAS";
constexpr const char* local_variable = "POPDIST_NUM_LOCAL_REPLICAS";
constexpr const char* offset_variable = "POPDIST_REPLICA_INDEX_OFFSET";
constexpr const char* uniform_variable = "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE";
constexpr const char* ipus_variable = "POPDIST_NUM_IPUS_PER_REPLICA";
constexpr const char* local_index_variable = "POPDIST_LOCAL_INSTANCE_INDEX";

int64_t number_of_launcher(const char* variable, int64_t otherwise, int64_t least) {
  const int64_t number = number_in_environment(variable, otherwise);
  check(number >= least, ErrorKind::runtime,
        "the environment variable {} must be at least {}, got {}", variable, least, number);
  return number;
}

bool is_uniform() {
  const char* text = std::getenv(uniform_variable);
  const std::string_view word = text ? text : "1";
  const bool yes = word == "1" || word == "true";
  check(yes || word == "0" || word == "false", ErrorKind::runtime,
        "the environment variable {} must be 0 or 1, got '{}'", uniform_variable, word);
  return yes;
}

// What the numbers of an instance are counted by.
int64_t replicas_of_each_instance() {
  const int64_t total = getNumTotalReplicas();
  const int64_t local = getNumLocalReplicas();
  const int64_t offset = getReplicaIndexOffset();
  check(is_uniform(), ErrorKind::runtime,
        "instances cannot be counted by their replicas: {} says that they have different numbers "
        "of them",
        uniform_variable);
  check(total % local == 0 && offset % local == 0 && offset < total, ErrorKind::runtime,
        "the environment contradicts itself: instances of {} replicas ({}), of {} in all ({}), of "
        "which {} come before ({})",
        local, local_variable, total, total_variable, offset, offset_variable);
  return local;
}

}  // namespace

bool isPopdistEnvSet() {
  const char* text = std::getenv(total_variable);
  return text && *text;
}

int64_t getNumTotalReplicas() { return number_of_launcher(total_variable, 1, 1); }

int64_t getNumLocalReplicas() { return number_of_launcher(local_variable, 1, 1); }

int64_t getNumIpusPerReplica() { return number_of_launcher(ipus_variable, 1, 1); }

int64_t getReplicaIndexOffset() { return number_of_launcher(offset_variable, 0, 0); }

int64_t getLocalInstanceIndex() { return number_of_launcher(local_index_variable, 0, 0); }

int64_t getInstanceIndex() {
  if (!isPopdistEnvSet()) return number_of_launcher("OMPI_COMM_WORLD_RANK", 0, 0);
  return getReplicaIndexOffset() / replicas_of_each_instance();
}

int64_t getNumInstances() {
  if (!isPopdistEnvSet()) return number_of_launcher("OMPI_COMM_WORLD_SIZE", 1, 1);
  return getNumTotalReplicas() / replicas_of_each_instance();
}

bool checkNumIpusPerReplica(int64_t ipus_per_replica) {
  const bool said = std::getenv(ipus_variable) != nullptr;
  return ipus_per_replica >= 1 && (!said || ipus_per_replica == getNumIpusPerReplica());
}

int64_t getDeviceId(int64_t ipus_per_replica) {
  check(ipus_per_replica >= 0, ErrorKind::value,
        "getDeviceId: a replica has at least one IPU, got {}", ipus_per_replica);
  const int64_t each = ipus_per_replica > 0 ? ipus_per_replica : getNumIpusPerReplica();
  int64_t needed = 0;
  const bool overflows = __builtin_mul_overflow(each, getNumLocalReplicas(), &needed);
  const int64_t index = getLocalInstanceIndex();
  check(!overflows && needed <= num_virtual_ipus(), ErrorKind::runtime,
        "getDeviceId: there is no device of {} replicas x {} IPUs; this machine has {} IPUs, and "
        "TESSERA_NUM_IPUS gives it more",
        getNumLocalReplicas(), each, num_virtual_ipus());
  const int64_t ipus = rounded_to_power_of_two(needed);
  const auto devices = devices_of_size(num_virtual_ipus(), ipus);
  check(static_cast<size_t>(index) < devices.size(), ErrorKind::runtime,
        "getDeviceId: instance {} of this machine has no device: {} IPUs make {} devices of {}",
        index, num_virtual_ipus(), devices.size(), ipus);
  return devices[static_cast<size_t>(index)].id;
}

void init() {
  const int64_t instances = getNumInstances();
  if (instances > 1) join_instances(getInstanceIndex(), instances);
}

at::Tensor allReduce(const at::Tensor& tensor, ReduceOp op) {
  const bool average = op == ReduceOp::average;
  const Reduction reduction = op == ReduceOp::min       ? Reduction::min
                              : op == ReduceOp::max     ? Reduction::max
                              : op == ReduceOp::product ? Reduction::product
                                                        : Reduction::sum;
  return reduce_over_instances(tensor, reduction, average, "popdist::allReduce");
}

at::Tensor broadcast(const at::Tensor& tensor, int64_t root) {
  return broadcast_to_instances(tensor, root, "popdist::broadcast");
}

at::Tensor allGather(const at::Tensor& tensor) {
  return gather_from_instances(tensor, "popdist::allGather");
}

void barrier() { meet_instances("popdist::barrier"); }

void executeOnInstances(const std::set<int64_t>& instances, const std::function<void()>& function) {
  const int64_t count = getNumInstances();
  std::vector<int> members;
  for (const int64_t instance : instances) {
    check(instance >= 0 && instance < count, ErrorKind::value,
          "executeOnInstances: there is no instance {}; there are {}, counted from 0", instance,
          count);
    members.push_back(static_cast<int>(instance));
  }
  if (!instances.contains(getInstanceIndex())) return;
  const OnlyInstances only(std::move(members));
  function();
}

Options options(int64_t ipus_per_replica) {
  check(ipus_per_replica == 0 || checkNumIpusPerReplica(ipus_per_replica), ErrorKind::runtime,
        "popdist.poptorch.Options: ipus_per_replica is {}, but the launcher was told {} ({})",
        ipus_per_replica, getNumIpusPerReplica(), ipus_variable);
  Options made;
  made.replicationFactor(getNumLocalReplicas());
  made.Distributed().configureProcessId(getInstanceIndex(), getNumInstances());
  return made;
}

}  // namespace popdist
}  // namespace tessera
