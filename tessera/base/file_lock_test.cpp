#include "tessera/base/file_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class FileLocks : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("tessera_lock_" + std::to_string(getpid()));
  const std::string path_ = folder_ / "one.lock";
};

TEST_F(FileLocks, OneAtATimeAndNoFileIsLeft) {
  std::atomic<int> inside = 0, most = 0, done = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      const FileLock lock(path_, seconds(60));
      most = std::max(most.load(), ++inside);
      std::this_thread::sleep_for(milliseconds(2));
      --inside;
      done += lock.is_held();
    });
  }
  threads.clear();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(done, 8);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(FileLocks, NobodyWaitsForEver) {
  const FileLock first(path_, milliseconds(0));
  EXPECT_TRUE(first.is_held() && !first.waited());
  const FileLock second(path_, milliseconds(30));
  EXPECT_TRUE(!second.is_held() && second.waited() && second.timed_out());
}

TEST_F(FileLocks, AWaiterCanBeStopped) {
  const FileLock first(path_, milliseconds(0));
  const auto stop = [] { throw std::runtime_error("enough"); };
  EXPECT_THROW(FileLock(path_, seconds(60), stop), std::runtime_error);
}

TEST_F(FileLocks, TheDeadHaveNone) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const FileLock lock(path_, milliseconds(0));
    if (write(ready[1], "x", 1) == 1) pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  EXPECT_FALSE(FileLock(path_, milliseconds(0)).is_held());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(std::filesystem::exists(path_));
  EXPECT_TRUE(FileLock(path_, seconds(60)).is_held());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(FileLocks, WhereNoneCanBeNobodyWaits) {
  const FileLock lock(folder_ / "missing" / "one.lock", seconds(60));
  EXPECT_TRUE(!lock.is_held() && !lock.waited());
}

}  // namespace
}  // namespace tessera
