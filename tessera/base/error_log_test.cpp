#include "tessera/base/error_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace tessera {
namespace {

namespace fs = std::filesystem;

class ErrorLog : public testing::Test {
 protected:
  ErrorLog() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    set_error_log_folder(folder_);
  }
  ~ErrorLog() override {
    set_error_log_folder(".");
    fs::remove_all(folder_);
  }

  static std::string lines(int count) {
    std::string text = "line 1";
    for (int i = 2; i <= count; ++i) text += "\nline " + std::to_string(i);
    return text;
  }

  std::string file() const { return folder_ + "/poptorch_error.log"; }

  std::string content() const {
    std::ostringstream text;
    text << std::ifstream(file()).rdbuf();
    return text.str();
  }

  std::string folder_ = testing::TempDir() + "tessera_error_log_" + std::to_string(getpid());
};

// spec: 7 poptorch_error.log
TEST_F(ErrorLog, ALongMessageGoesToAFile) {
  const std::string message = lines(81);
  const std::string shown = shortened_error(message);
  EXPECT_EQ(content(), message + "\n");
  EXPECT_EQ(shown, lines(10) + "\n... 71 more lines: the whole message is in '" + file() + "'");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);  // no scratch file is left
}

// spec: 7 poptorch_error.log
TEST_F(ErrorLog, EightyLinesAreShown) {
  EXPECT_EQ(shortened_error(lines(80)), lines(80));
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(ErrorLog, ALinkIsReplacedNotFollowed) {
  const std::string precious = folder_ + "/precious";
  std::ofstream(precious) << "keep";
  fs::create_symlink(precious, file());
  shortened_error(lines(100));
  EXPECT_FALSE(fs::is_symlink(file()));
  EXPECT_EQ(fs::file_size(precious), 4U);
}

TEST_F(ErrorLog, WhereNothingCanBeWrittenTheMessageStaysWhole) {
  set_error_log_folder(folder_ + "/absent");
  EXPECT_EQ(shortened_error(lines(100)), lines(100));
}

}  // namespace
}  // namespace tessera
