#include "tessera/base/replace_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include "tessera/base/text_files_for_test.h"

namespace tessera {
namespace {

class ReplaceFile : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  int64_t files() const { return std::distance(std::filesystem::directory_iterator(folder_), {}); }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("tessera_replace_" + std::to_string(getpid()));
  const std::string path_ = folder_ / "file";
};

TEST_F(ReplaceFile, WritesAndReplaces) {
  EXPECT_TRUE(replace_file(path_, "first"));
  EXPECT_TRUE(replace_file(path_, "second"));
  EXPECT_EQ(text_of_file(path_), "second");
  EXPECT_EQ(files(), 1);
}

TEST_F(ReplaceFile, DoesNotFollowLinks) {
  EXPECT_TRUE(replace_file(folder_ / "other", "untouched"));
  std::filesystem::create_symlink(folder_ / "other", path_);
  EXPECT_TRUE(replace_file(path_, "mine"));
  EXPECT_EQ(text_of_file(folder_ / "other"), "untouched");
  EXPECT_EQ(text_of_file(path_), "mine");
}

TEST_F(ReplaceFile, WritesToDevices) {
  EXPECT_TRUE(replace_file("/dev/null", "text"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_FALSE(replace_file("/dev/full", "text"));
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_FALSE(replace_file(folder_, "text"));
  EXPECT_EQ(errno, EISDIR);
}

TEST_F(ReplaceFile, SaysWhyNot) {
  EXPECT_FALSE(replace_file(folder_ / "missing" / "file", "text"));
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(ReplaceFile, AFullDiskLeavesWhatWasThere) {
  EXPECT_TRUE(replace_file(path_, "before"));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 16;
  setrlimit(RLIMIT_FSIZE, &small);
  const bool written = replace_file(path_, std::string(100, 'x'));
  const int reason = errno;
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(written);
  EXPECT_EQ(reason, EFBIG);
  EXPECT_EQ(text_of_file(path_), "before");
  EXPECT_EQ(files(), 1);
}

}  // namespace
}  // namespace tessera
