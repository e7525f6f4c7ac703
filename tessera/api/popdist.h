// What a launcher says to the processes of a program that runs as several instances, in popdist's
// words: which of them this one is, and how many replicas each has. It says so in environment
// variables, which are read anew at each call. Without them there is one instance with one replica,
// or as many as mpirun has started.
//
//   POPDIST_NUM_TOTAL_REPLICAS              of all instances together; its presence is the sign
//   POPDIST_NUM_LOCAL_REPLICAS              of this instance
//   POPDIST_REPLICA_INDEX_OFFSET            replicas of the instances before this one
//   POPDIST_UNIFORM_REPLICAS_PER_INSTANCE   0 or 1: whether all instances have as many
//   POPDIST_NUM_IPUS_PER_REPLICA
//   POPDIST_LOCAL_INSTANCE_INDEX            among the instances on this machine
//
// Whatever contradicts itself is an Error of kind runtime.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <set>

#include "tessera/api/options/options.h"

namespace tessera {
namespace popdist {

// Whether a launcher started this process.
bool isPopdistEnvSet();

int64_t getNumTotalReplicas();
int64_t getNumLocalReplicas();
int64_t getNumIpusPerReplica();
int64_t getReplicaIndexOffset();
int64_t getLocalInstanceIndex();

// Error where instances have different numbers of replicas.
int64_t getInstanceIndex();
int64_t getNumInstances();

// Whether the launcher meant a model with that many IPUs; true where there was none.
bool checkNumIpusPerReplica(int64_t ipus_per_replica);

// The device that is this instance's: the instances of a machine have one after the other. 0 IPUs
// stands for what the environment says.
int64_t getDeviceId(int64_t ipus_per_replica = 0);

// Joins the instances. Error where others were announced that nobody has started.
void init();

// What instances do together, after init(): each calls it, with a tensor of the same type and
// shape. Results are new tensors; alone, an instance has itself.
enum class ReduceOp { sum, average, min, max, product };
at::Tensor allReduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum);
at::Tensor broadcast(const at::Tensor& tensor, int64_t root = 0);  // what instance `root` has
at::Tensor allGather(const at::Tensor& tensor);                    // all of them, along dimension 0
void barrier();                                                    // waits for all

// Calls the function on these instances alone, of which the above then means them.
void executeOnInstances(const std::set<int64_t>& instances, const std::function<void()>& function);

// Options with the replicas of this instance, and its number as that of the process.
Options options(int64_t ipus_per_replica = 0);

}  // namespace popdist
}  // namespace tessera
