#include "tessera/base/log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tessera {
namespace {

using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

class Log : public testing::Test {
 protected:
  ~Log() override {
    set_log_level(LogLevel::warn);
    limit_repeated_logs(4);
  }
};

int64_t lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

// spec: 7 levels
TEST_F(Log, LevelsHaveNamesAndNumbers) {
  EXPECT_EQ(log_level_named("TRACE"), LogLevel::trace);
  EXPECT_EQ(log_level_named("1"), LogLevel::debug);
  EXPECT_EQ(log_level_named("INFO"), LogLevel::info);
  EXPECT_EQ(log_level_named("3"), LogLevel::warn);
  EXPECT_EQ(log_level_named("ERR"), LogLevel::error);
  EXPECT_EQ(log_level_named("OFF"), LogLevel::off);
  EXPECT_EQ(log_level_named("6"), LogLevel::off);
  EXPECT_EQ(log_level_named("DEBUG_IR"), LogLevel::debug);
  for (const char* text : {"", "5", "7", "warn", "WARNING"}) {
    EXPECT_FALSE(log_level_named(text)) << text;
  }
}

// spec: 7 formats
TEST_F(Log, WritesTimeSourceAndLevel) {
  CaptureStderr();
  log(LogLevel::warn, "{} is odd", 3);
  log(LogLevel::info, "not at this level");
  const std::string text = GetCapturedStderr();
  EXPECT_EQ(text.size(), std::string("[00:00:00.000] [poptorch:cpp] [warning] 3 is odd\n").size());
  EXPECT_EQ(text.substr(14), " [poptorch:cpp] [warning] 3 is odd\n");
  EXPECT_EQ(text[9], '.');
}

// spec: 7 repeated messages
TEST_F(Log, TheSameMessageIsWrittenAFewTimes) {
  limit_repeated_logs(2);
  CaptureStderr();
  for (int i = 0; i < 5; ++i) log(LogLevel::warn, "again");
  log(LogLevel::warn, "another");
  EXPECT_EQ(lines_of(GetCapturedStderr()), 3);
  limit_repeated_logs({});
  CaptureStderr();
  for (int i = 0; i < 50; ++i) log(LogLevel::warn, "again");
  EXPECT_EQ(lines_of(GetCapturedStderr()), 50);
}

}  // namespace
}  // namespace tessera
