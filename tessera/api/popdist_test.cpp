#include "tessera/api/popdist.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include "tessera/base/error.h"

namespace tessera {
namespace {

class Popdist : public testing::Test {
 protected:
  Popdist() { clear(); }
  ~Popdist() override { clear(); }

  static void clear() {
    for (const char* name :
         {"TOTAL", "LOCAL", "OFFSET", "UNIFORM", "IPUS", "LOCAL_INDEX", "VIRTUAL"}) {
      unsetenv(variables().at(name));
    }
  }
  static const std::map<std::string, const char*>& variables() {
    static const std::map<std::string, const char*> names = {
        {"TOTAL", "POPDIST_NUM_TOTAL_REPLICAS"},
        {"LOCAL", "POPDIST_NUM_LOCAL_REPLICAS"},
        {"OFFSET", "POPDIST_REPLICA_INDEX_OFFSET"},
        {"UNIFORM", "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE"},
        {"IPUS", "POPDIST_NUM_IPUS_PER_REPLICA"},
        {"LOCAL_INDEX", "POPDIST_LOCAL_INSTANCE_INDEX"},
        {"VIRTUAL", "TESSERA_NUM_IPUS"}};
    return names;
  }
  static void set(const std::string& name, const char* value) {
    setenv(variables().at(name), value, 1);
  }
  static void launch(const char* total, const char* local, const char* offset) {
    set("TOTAL", total);
    set("LOCAL", local);
    set("OFFSET", offset);
  }
  // The message of an Error of kind runtime.
  static std::string refusal(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::runtime);
      return error.message();
    }
    return "nothing";
  }
};

// spec: 8.1 isPopdistEnvSet, 8.1 init
TEST_F(Popdist, WithoutALauncherThereIsOneInstance) {
  EXPECT_FALSE(popdist::isPopdistEnvSet());
  EXPECT_EQ(popdist::getInstanceIndex(), 0);
  EXPECT_EQ(popdist::getNumInstances(), 1);
  EXPECT_EQ(popdist::getLocalInstanceIndex(), 0);
  EXPECT_EQ(popdist::getNumTotalReplicas(), 1);
  EXPECT_EQ(popdist::getNumLocalReplicas(), 1);
  EXPECT_EQ(popdist::getReplicaIndexOffset(), 0);
  EXPECT_EQ(popdist::getNumIpusPerReplica(), 1);
  EXPECT_TRUE(popdist::checkNumIpusPerReplica(4));
  EXPECT_FALSE(popdist::checkNumIpusPerReplica(0));
  EXPECT_EQ(popdist::getDeviceId(), 0);
  popdist::init();
  popdist::init();
  const Options options = popdist::options();
  EXPECT_EQ(options.replication_factor(), 1);
  EXPECT_EQ(options.Distributed().numProcesses(), 1);
}

// spec: 8.2 environment
TEST_F(Popdist, TheLaunchersNumbersAreRead) {
  launch("8", "2", "4");
  set("IPUS", "4");
  set("LOCAL_INDEX", "1");
  EXPECT_TRUE(popdist::isPopdistEnvSet());
  EXPECT_EQ(popdist::getInstanceIndex(), 2);
  EXPECT_EQ(popdist::getNumInstances(), 4);
  EXPECT_EQ(popdist::getLocalInstanceIndex(), 1);
  EXPECT_EQ(popdist::getNumTotalReplicas(), 8);
  EXPECT_EQ(popdist::getNumLocalReplicas(), 2);
  EXPECT_TRUE(popdist::checkNumIpusPerReplica(4));
  EXPECT_FALSE(popdist::checkNumIpusPerReplica(2));
  const Options options = popdist::options(4);
  EXPECT_EQ(options.replication_factor(), 2);
  EXPECT_EQ(options.Distributed().processId(), 2);
  EXPECT_EQ(options.Distributed().numProcesses(), 4);
}

// spec: 8.1 getDeviceId
TEST_F(Popdist, EachInstanceOfAMachineHasADevice) {
  set("VIRTUAL", "16");
  set("LOCAL", "2");
  set("LOCAL_INDEX", "1");
  EXPECT_EQ(popdist::getDeviceId(), 17);   // 16 single IPUs, then pairs
  EXPECT_EQ(popdist::getDeviceId(3), 29);  // 6 IPUs: the second group of 8
  EXPECT_NE(refusal([] { popdist::getDeviceId(8); }).find("instance 1"), std::string::npos);
  EXPECT_NE(refusal([] { popdist::getDeviceId(9); }).find("no device of 2"), std::string::npos);
}

// spec: 8.1 init
TEST_F(Popdist, InstancesThatNobodyStartedAreMissed) {
  launch("4", "2", "2");
  const std::string message = refusal([] { popdist::init(); });
  EXPECT_NE(message.find("instance 1 of 2"), std::string::npos) << message;
  EXPECT_NE(message.find("poprun --num-instances=2"), std::string::npos) << message;
}

// spec: 8.1 execute_on_instances
TEST_F(Popdist, AloneAnInstanceDoesAllWithItself) {
  const at::Tensor x = at::arange(6).reshape({2, 3});
  for (const auto op : {popdist::ReduceOp::sum, popdist::ReduceOp::average}) {
    EXPECT_TRUE(popdist::allReduce(x, op).equal(x));
  }
  EXPECT_TRUE(popdist::broadcast(x).equal(x));
  EXPECT_TRUE(popdist::allGather(x).equal(x));
  EXPECT_FALSE(popdist::broadcast(x).is_same(x));
  popdist::barrier();
  int calls = 0;
  popdist::executeOnInstances({0}, [&] { ++calls; });
  popdist::executeOnInstances({}, [&] { ++calls; });
  EXPECT_EQ(calls, 1);
  EXPECT_THROW(popdist::executeOnInstances({1}, [] {}), Error);
  EXPECT_THROW(popdist::broadcast(x, 1), Error);
}

// spec: 8.1 uniform replicas
TEST_F(Popdist, WhatContradictsItselfIsRefused) {
  launch("4", "2", "0");
  set("UNIFORM", "0");
  EXPECT_NE(refusal([] { popdist::getNumInstances(); }).find("different"), std::string::npos);
  EXPECT_NE(refusal([] { popdist::getInstanceIndex(); }).find("different"), std::string::npos);
  set("UNIFORM", "maybe");
  EXPECT_NE(refusal([] { popdist::init(); }).find("maybe"), std::string::npos);
  set("UNIFORM", "true");
  EXPECT_EQ(popdist::getNumInstances(), 2);
  launch("5", "2", "0");
  EXPECT_NE(refusal([] { popdist::getNumInstances(); }).find("contradicts"), std::string::npos);
  launch("4", "2", "1");
  EXPECT_NE(refusal([] { popdist::getInstanceIndex(); }).find("contradicts"), std::string::npos);
  launch("4", "2", "4");
  EXPECT_NE(refusal([] { popdist::getInstanceIndex(); }).find("contradicts"), std::string::npos);
  launch("0", "2", "4");
  EXPECT_NE(refusal([] { popdist::init(); }).find("at least 1"), std::string::npos);
  set("IPUS", "2");
  EXPECT_NE(refusal([] { popdist::options(4); }).find("was told 2"), std::string::npos);
}

}  // namespace
}  // namespace tessera
