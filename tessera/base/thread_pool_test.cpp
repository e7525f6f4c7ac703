#include "tessera/base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "tessera/base/error.h"

namespace tessera {
namespace {

TEST(ThreadPool, EveryPieceRunsOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const int64_t pieces : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(pieces));
      pool.run(pieces, [&](int64_t piece) { ++runs[static_cast<size_t>(piece)]; });
      for (const auto& count : runs) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, RangesAreCutByTheGrainAlone) {
  std::vector<std::vector<std::pair<int64_t, int64_t>>> cuts;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::mutex mutex;
    std::vector<std::pair<int64_t, int64_t>> ranges;
    pool.run_ranges(25, 10, [&](int64_t begin, int64_t end) {
      const std::lock_guard lock(mutex);
      ranges.emplace_back(begin, end);
    });
    std::sort(ranges.begin(), ranges.end());
    cuts.push_back(ranges);
  }
  EXPECT_EQ(cuts[0], (std::vector<std::pair<int64_t, int64_t>>{{0, 10}, {10, 20}, {20, 25}}));
  EXPECT_EQ(cuts[1], cuts[0]);
}

TEST(ThreadPool, NothingToDoCallsNothing) {
  ThreadPool pool(2);
  pool.run_ranges(0, 10, [](int64_t, int64_t) { FAIL(); });
  pool.run(-1, [](int64_t) { FAIL(); });
}

TEST(ThreadPool, ExceptionArrivesAndPoolGoesOn) {
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(pool.run(100,
                          [](int64_t piece) {
                            if (piece % 10 == 3) fail(ErrorKind::runtime, "piece {}", piece);
                          }),
                 Error);
    std::atomic<int64_t> sum{0};
    pool.run(100, [&](int64_t piece) { sum += piece; });
    EXPECT_EQ(sum, 4950);
  }
}

TEST(ThreadPool, ManySmallJobsInARow) {
  ThreadPool pool(4);
  std::vector<int64_t> values(64);
  for (int job = 0; job < 2000; ++job) {
    pool.run(64, [&](int64_t piece) { values[static_cast<size_t>(piece)] += piece; });
  }
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), 2016 * 2000);
}

TEST(ThreadPool, JobsAfterAPauseFindSleepingWorkers) {
  ThreadPool pool(3);
  for (int job = 0; job < 20; ++job) {
    std::this_thread::sleep_for(std::chrono::microseconds(job % 2 == 0 ? 500 : 30));
    std::atomic<int64_t> sum{0};
    pool.run(10, [&](int64_t piece) { sum += piece; });
    EXPECT_EQ(sum, 45);
  }
}

TEST(ThreadPool, ASleepingWorkerTakesPartAgain) {
  ThreadPool pool(2);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::atomic<int> elsewhere{0};
  pool.run(20, [&, caller = std::this_thread::get_id()](int64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (std::this_thread::get_id() != caller) ++elsewhere;
  });
  EXPECT_GT(elsewhere, 0);
}

// Pieces are few and take no time: most workers come late, and must neither be waited for nor take
// a piece of the next job twice.
TEST(ThreadPool, WorkersThatComeLateHarmNothing) {
  ThreadPool pool(8);
  for (int64_t job = 0; job < 20'000; ++job) {
    std::array<std::atomic<int64_t>, 3> runs{};
    pool.run(2 + job % 2, [&](int64_t piece) { runs[static_cast<size_t>(piece)] += job + 1; });
    ASSERT_EQ(runs[0], job + 1);
    ASSERT_EQ(runs[1], job + 1);
    ASSERT_EQ(runs[2], job % 2 == 0 ? 0 : job + 1);
  }
}

TEST(ThreadPool, AfterAnExceptionNoPieceIsBegun) {
  ThreadPool pool(2);
  std::atomic<int> begun{0};
  EXPECT_THROW(pool.run(1'000'000,
                        [&](int64_t) {
                          ++begun;
                          fail(ErrorKind::runtime, "no");
                        }),
               Error);
  EXPECT_LE(begun, 2);
}

// True when a forked child runs jobs on the pool, destroys it and ends in time.
bool child_can_use(std::unique_ptr<ThreadPool>& pool) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a child that hangs dies of it
    for (int job = 0; job < 100; ++job) {
      std::atomic<int64_t> sum{0};
      pool->run(100, [&](int64_t piece) { sum += piece; });
      if (sum != 4950) _exit(1);
    }
    std::atomic<int> elsewhere{0};
    pool->run(20, [&, caller = std::this_thread::get_id()](int64_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (std::this_thread::get_id() != caller) ++elsewhere;
    });
    if (elsewhere == 0) _exit(2);
    pool.reset();
    ThreadPool(3).run(100, [](int64_t) {});
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(ThreadPool, AForkedChildHasThreadsOfItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer does not follow threads that start after a fork";
#endif
  auto pool = std::make_unique<ThreadPool>(3);
  EXPECT_TRUE(child_can_use(pool));  // before the first job
  for (int round = 0; round < 5; ++round) {
    std::atomic<int64_t> sum{0};
    pool->run(100, [&](int64_t piece) { sum += piece; });
    EXPECT_EQ(sum, 4950);
    EXPECT_TRUE(child_can_use(pool));
  }
}

TEST(ThreadPool, AChildForkedInTheMiddleOfAJobDoesNotHang) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer does not follow threads that start after a fork";
#endif
  auto pool = std::make_unique<ThreadPool>(3);
  std::atomic<bool> done{false};
  std::thread runner([&] {
    while (!done) pool->run(10, [](int64_t) { std::this_thread::yield(); });
  });
  for (int round = 0; round < 10; ++round) EXPECT_TRUE(child_can_use(pool));
  done = true;
  runner.join();
}

TEST(ThreadPool, AChildThatOnlyDestroysThePoolEnds) {
  auto pool = std::make_unique<ThreadPool>(3);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    pool.reset();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(ThreadPool, ThereIsACpuToUse) { EXPECT_GE(usable_cpus(), 1); }

}  // namespace
}  // namespace tessera
