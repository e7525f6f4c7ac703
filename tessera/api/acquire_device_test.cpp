#include "tessera/api/acquire_device.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tessera/api/model.h"
#include "tessera/api/options/option_warnings.h"
#include "tessera/api/options/options.h"
#include "tessera/base/error.h"

namespace tessera {
namespace {

class AcquireDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    clear();
    show_option_warnings([this](const std::string& text) { warnings_.push_back(text); });
  }
  void TearDown() override {
    clear();
    show_option_warnings({});
  }
  static void clear() {
    for (const char* name : {"TESSERA_NUM_IPUS", "POPTORCH_WAIT_FOR_IPU", "POPTORCH_IPU_MODEL",
                             "POPTORCH_SMALL_IPU_MODEL"}) {
      unsetenv(name);
    }
  }
  static std::string refusal(const Options& options, int64_t ipus = 1) {
    try {
      acquire_device(options, {.ipus_per_replica = ipus, .purpose = "test model"});
      return "";
    } catch (const Error& error) {
      return error.message();
    }
  }
  static bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  }

  std::vector<std::string> warnings_;
};

// spec: 2.7 power of two, 2.2 autoRoundNumIPUs
TEST_F(AcquireDevice, NumbersOfIpusArePowersOfTwo) {
  for (int64_t ipus : {1, 2, 4, 8, 16, 32, 64}) EXPECT_EQ(ipus_to_reserve(Options(), ipus), ipus);
  const std::string message = refusal(Options(), 3);
  EXPECT_TRUE(has(message, "uses 3 IPUs") && has(message, "4 must be reserved")) << message;
  EXPECT_TRUE(has(message, "autoRoundNumIPUs(True)"));
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(ipus_to_reserve(Options().autoRoundNumIPUs(), 3), 4);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_TRUE(has(warnings_[0], "4 IPUs are reserved for the 3"));
  EXPECT_EQ(ipus_to_reserve(Options().autoRoundNumIPUs().replicationFactor(3), 3), 16);
  EXPECT_EQ(ipus_to_reserve(Options().replicationFactor(4), 4), 16);
}

// spec: 2.7 at most 64 IPUs
TEST_F(AcquireDevice, AProcessHasSixtyFourIpusAtMost) {
  EXPECT_TRUE(has(refusal(Options(), 65), "a process can have 64 at most"));
  EXPECT_TRUE(has(refusal(Options().replicationFactor(int64_t{1} << 62), 4), "64 at most"));
  EXPECT_TRUE(has(refusal(Options().useIpuModel(true), 65), "64 at most"));
}

// spec: 2.7 power of two
TEST_F(AcquireDevice, TheModelAndOfflineTargetsNeedNone) {
  setenv("TESSERA_NUM_IPUS", "0", 1);
  EXPECT_EQ(refusal(Options().useIpuModel(true), 3), "");
  EXPECT_EQ(refusal(Options().useOfflineIpuTarget(), 3), "");
  EXPECT_EQ(refusal(Options().connectionType(ConnectionType::never), 3), "");
  EXPECT_FALSE(acquire_device(Options().useIpuModel(true), {}).is_held());
  setenv("POPTORCH_IPU_MODEL", "1", 1);
  EXPECT_EQ(refusal(Options(), 3), "");
}

// spec: 12 acquisition errors
TEST_F(AcquireDevice, DevicesThatAreNotThere) {
  setenv("TESSERA_NUM_IPUS", "0", 1);
  EXPECT_TRUE(has(refusal(Options()), "Failed to acquire 1 IPU(s): this machine has 0"));
  setenv("TESSERA_NUM_IPUS", "6", 1);
  setenv("POPTORCH_WAIT_FOR_IPU", "1", 1);  // there is nothing to wait for
  EXPECT_TRUE(has(refusal(Options(), 8), "Failed to acquire 8 IPU(s): this machine has 6"));
  EXPECT_EQ(refusal(Options(), 4), "");
}

// spec: 2.2 useIpuId
TEST_F(AcquireDevice, ADeviceByItsId) {
  EXPECT_EQ(acquire_device(Options().useIpuId(5), {}).ipus(), (IpuGroup{5, 1}));
  EXPECT_EQ(acquire_device(Options().useIpuId(18), {.ipus_per_replica = 2}).ipus(),
            (IpuGroup{4, 2}));
  EXPECT_TRUE(warnings_.empty());
  EXPECT_TRUE(has(refusal(Options().useIpuId(31)), "no device of this number"));
  EXPECT_TRUE(has(refusal(Options().useIpuId(16), 4), "has 2 IPUs, but the model needs 4"));
  EXPECT_EQ(refusal(Options().useIpuId(24), 2), "");
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_TRUE(has(warnings_[0], "has 4 IPUs, but the model needs only 2"));
  EXPECT_EQ(refusal(Options().useIpuId(24).autoRoundNumIPUs(), 3), "");
}

// spec: 12 acquisition errors
TEST_F(AcquireDevice, WhoHasItIsSaid) {
  setenv("TESSERA_NUM_IPUS", "2", 1);
  const Device first = acquire_device(Options(), {.purpose = "training model 'A'"});
  EXPECT_TRUE(has(refusal(Options(), 2), "Failed to acquire 2 IPU(s): every group of 2 IPUs"));
  const Device second = acquire_device(Options(), {.purpose = "inference model 'B'"});
  const std::string message = refusal(Options());
  EXPECT_TRUE(has(message, "Failed to acquire 1 IPU(s): all 2 IPUs are in use")) << message;
  EXPECT_TRUE(has(message, "IPU 0 by this process's training model 'A'")) << message;
  EXPECT_TRUE(has(message, "IPU 1 by this process's inference model 'B'")) << message;
  EXPECT_TRUE(has(message, "detachFromDevice()") && has(message, "TESSERA_NUM_IPUS"));
  EXPECT_TRUE(has(refusal(Options().useIpuId(1)), "device 1 is in use"));
}

TEST_F(AcquireDevice, ModelsThatNobodyCanReachAreFreedFirst) {
  setenv("TESSERA_NUM_IPUS", "1", 1);
  Device lost = acquire_device(Options(), {});
  const Device taken = acquire_device(Options(), {.reclaim = [&] { lost.release(); }});
  EXPECT_TRUE(taken.is_held());
}

// spec: 1.4 exclusive use
TEST_F(AcquireDevice, ModelsInCppHaveTheirOwn) {
  setenv("TESSERA_NUM_IPUS", "1", 1);
  const at::Tensor x = torch::ones({1, 4});
  auto first = inferenceModel(torch::nn::Linear(4, 2));
  auto second = inferenceModel(torch::nn::Linear(4, 2));
  first(x);
  std::string message;
  try {
    second(x);
  } catch (const Error& error) {
    message = error.message();
  }
  EXPECT_TRUE(has(message, "this process's inference model 'torch::nn::LinearImpl'")) << message;
  first.detachFromDevice();
  second(x);
  EXPECT_TRUE(has(refusal(Options()), "Failed to acquire"));
  second.destroy();
  {
    auto third = inferenceModel(torch::nn::Linear(4, 2));
    third(x);
  }
  EXPECT_EQ(refusal(Options()), "");
}

// spec: 7 POPTORCH_WAIT_FOR_IPU
TEST_F(AcquireDevice, Waiting) {
  setenv("TESSERA_NUM_IPUS", "1", 1);
  setenv("POPTORCH_WAIT_FOR_IPU", "1", 1);
  Device device = acquire_device(Options(), {});
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    device.release();
  });
  const auto start = std::chrono::steady_clock::now();
  const Device waited = acquire_device(Options(), {});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  other.join();
  EXPECT_TRUE(waited.is_held());
  int polls = 0;  // Ctrl-C
  const auto poll = [&] { check(++polls < 4, "interrupted"); };
  EXPECT_THROW(acquire_device(Options(), {.poll = poll}), Error);
  setenv("POPTORCH_WAIT_FOR_IPU", "0", 1);
  EXPECT_TRUE(has(refusal(Options()), "Failed to acquire"));
}

}  // namespace
}  // namespace tessera
