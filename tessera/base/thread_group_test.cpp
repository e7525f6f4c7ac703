#include "tessera/base/thread_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>

#include "tessera/base/half.h"

namespace tessera {
namespace {

// Runs work(communicator) for every rank, each in a thread of its own; true per rank that was
// aborted. A rank whose work throws anything else aborts the others.
std::vector<bool> run(ThreadGroup& group, const std::function<void(Communicator&)>& work) {
  std::vector<int> aborted(static_cast<size_t>(group.size()), 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(group.member(rank));
      } catch (const Aborted&) {
        aborted[static_cast<size_t>(rank)] = 1;
      } catch (const std::runtime_error&) {
        group.abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return {aborted.begin(), aborted.end()};
}

void add_up(Communicator& us, const std::vector<float>& values, std::vector<float>& sums) {
  const Summand summand{reinterpret_cast<const std::byte*>(values.data()),
                        reinterpret_cast<std::byte*>(sums.data()), values.size()};
  us.all_reduce(0, {DType::f32, {&summand, 1}});
}

// So that ranks come in another order every time.
void linger(int rank, int round) {
  std::this_thread::sleep_for(std::chrono::microseconds((rank * 7 + round * 13) % 5 * 40));
}

TEST(ThreadGroup, KnowsItsRanks) {
  ThreadGroup group(3);
  std::atomic<int> sum = 0;
  run(group, [&](Communicator& us) {
    EXPECT_EQ(us.size(), 3);
    sum += us.rank();
  });
  EXPECT_EQ(sum, 3);
}

// A sum in any other order has other bits: 1e8 takes in what is added to it.
TEST(ThreadGroup, SumsInTheOrderOfRanksWhoeverComesFirst) {
  for (const int size : {1, 2, 4}) {
    ThreadGroup group(size);
    const float values[] = {1e8F, 3.0F, -1e8F, 0.5F};
    float expected = values[0];
    for (int rank = 1; rank < size; ++rank) expected += values[rank];
    for (int round = 0; round < 20; ++round) {
      run(group, [&](Communicator& us) {
        linger(us.rank(), round);
        const std::vector<float> own(7, values[us.rank()]);
        std::vector<float> sum(7);
        add_up(us, own, sum);
        EXPECT_EQ(sum, std::vector<float>(7, expected)) << size;
        std::vector<float> in_place = own;
        add_up(us, in_place, in_place);
        EXPECT_EQ(in_place, sum);
      });
    }
  }
}

TEST(ThreadGroup, NothingCanBeSummedToo) {
  ThreadGroup group(2);
  EXPECT_EQ(run(group, [](Communicator& us) { us.all_reduce(0, {}); }),
            (std::vector<bool>{false, false}));
}

// Where a tensor ends and where a rank's part does are two things.
TEST(ThreadGroup, AddsUpManyTensorsInOneJourney) {
  ThreadGroup group(3);
  run(group, [&](Communicator& us) {
    std::vector<std::vector<float>> tensors;
    for (const size_t size : {0, 1, 5, 3000, 0, 2, 1500}) {
      tensors.emplace_back(size, static_cast<float>(us.rank() + 1));
    }
    std::vector<Summand> summands;
    for (auto& tensor : tensors) {
      auto* data = reinterpret_cast<std::byte*>(tensor.data());
      summands.push_back({data, data, tensor.size()});
    }
    us.all_reduce(0, {DType::f32, summands});
    for (const auto& tensor : tensors) EXPECT_EQ(tensor, std::vector<float>(tensor.size(), 6));
  });
}

// 2048 + 1 is no half: it is rounded each time, and stays.
TEST(ThreadGroup, HalvesAreRoundedAfterEachRank) {
  ThreadGroup group(4);
  run(group, [&](Communicator& us) {
    std::vector<Half> values(700, to_half(us.rank() == 0 ? 2048.0F : 1.0F));
    auto* data = reinterpret_cast<std::byte*>(values.data());
    const Summand summand{data, data, values.size()};
    us.all_reduce(0, {DType::f16, {&summand, 1}});
    EXPECT_EQ(values, std::vector<Half>(700, to_half(2048)));
  });
}

TEST(ThreadGroup, ABarrierHoldsAllUntilTheLastIsThere) {
  ThreadGroup group(4);
  std::atomic<int> here = 0;
  run(group, [&](Communicator& us) {
    for (int round = 1; round <= 20; ++round) {
      linger(us.rank(), round);
      ++here;
      us.barrier();
      EXPECT_GE(here, 4 * round);
    }
  });
}

TEST(ThreadGroup, NobodyWaitsForOneThatFailed) {
  ThreadGroup group(4);
  for (int round = 0; round < 20; ++round) {
    const auto aborted = run(group, [&](Communicator& us) {
      linger(us.rank(), round);
      if (us.rank() == 2) throw std::runtime_error("broken");
      std::vector<float> values(3);
      add_up(us, values, values);
      us.barrier();
    });
    EXPECT_EQ(aborted, (std::vector<bool>{true, true, false, true}));
    EXPECT_TRUE(group.is_aborted());
    EXPECT_THROW(group.member(0).barrier(), Aborted);
    group.reset();
  }
  std::vector<float> sums(4);
  run(group, [&](Communicator& us) {  // as good as new
    std::vector<float> one = {1};
    add_up(us, one, one);
    sums[static_cast<size_t>(us.rank())] = one[0];
  });
  EXPECT_EQ(sums, std::vector<float>(4, 4));
}

// One fails at once after the last sum: whoever is still in it gets the whole sum.
TEST(ThreadGroup, AFailureAfterACollectiveLeavesItWhole) {
  ThreadGroup group(4);
  for (int round = 0; round < 50; ++round) {
    std::vector<float> sums(4);
    run(group, [&](Communicator& us) {
      std::vector<float> one(1000, 1);
      add_up(us, one, one);
      sums[static_cast<size_t>(us.rank())] = one[999];
      if (us.rank() == round % 4) throw std::runtime_error("broken");
      us.barrier();
    });
    EXPECT_EQ(sums, std::vector<float>(4, 4));
    group.reset();
  }
}

}  // namespace
}  // namespace tessera
