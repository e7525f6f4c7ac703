#include "tessera/api/logging.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/base/log.h"

namespace tessera {
namespace {

class Logging : public testing::Test {
 protected:
  ~Logging() override { set_log_level(LogLevel::warn); }
};

template <typename Level>
std::string refused(Level level) {
  try {
    setLogLevel(level);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::value);
    return error.message();
  }
  return "";
}

// spec: 1.1 setLogLevel, 7 setLogLevel
TEST_F(Logging, LevelsByNameAndNumber) {
  setLogLevel("TRACE");
  EXPECT_EQ(log_level(), LogLevel::trace);
  setLogLevel(2);
  EXPECT_EQ(log_level(), LogLevel::info);
  setLogLevel("ERR");
  EXPECT_EQ(log_level(), LogLevel::error);
  setLogLevel(6);
  EXPECT_EQ(log_level(), LogLevel::off);
}

// spec: 7 setLogLevel
TEST_F(Logging, RefusesOthers) {
  EXPECT_TRUE(refused(5).starts_with("Invalid log level integer 5"));
  EXPECT_TRUE(refused(-1).starts_with("Invalid log level integer -1"));
  EXPECT_TRUE(refused("warn").starts_with("Unknown log level: warn. Valid values are TRACE"));
  EXPECT_TRUE(refused("3").starts_with("Unknown log level: 3. Valid values are"));
  EXPECT_TRUE(refused("").starts_with("Unknown log level: . Valid values are"));
  EXPECT_EQ(log_level(), LogLevel::warn);
}

}  // namespace
}  // namespace tessera
