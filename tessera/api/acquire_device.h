// The device that a program runs on: how many IPUs it needs, which ones it may have, and what is
// said where it cannot have them. All rules about that are here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tessera/device/registry.h"

namespace tessera {

class Options;

struct DeviceRequest {
  int64_t ipus_per_replica = 1;        // over which forward's blocks are spread
  std::string purpose = {};            // for those who find the device busy: "training model 'MLP'"
  std::function<void()> poll = {};     // throws where the user does not want to wait any longer
  std::function<void()> reclaim = {};  // frees models that nobody can reach any more
};

// How many IPUs are reserved for a program: those of all replicas. They must be a power of two;
// where they are not, that is an Error, or more are reserved with a warning if autoRoundNumIPUs
// says so. Programs for the IPU model or an offline target reserve none, and need no power of two.
// Error for more than 64.
int64_t ipus_to_reserve(const Options& options, int64_t ipus_per_replica);

// Takes the device that useIpuId names, or the first that is free. None where ipus_to_reserve() is
// 0. Where all are busy it is an Error that says who has them, or with POPTORCH_WAIT_FOR_IPU=1 it
// waits. Error where there is no such device at all.
Device acquire_device(const Options& options, const DeviceRequest& request);

}  // namespace tessera
