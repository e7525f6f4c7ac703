#include "tessera/base/log.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

namespace tessera {
namespace {

LogLevel level_from_environment() {
  const char* text = std::getenv("POPTORCH_LOG_LEVEL");
  const std::string_view name = text ? text : "";
  if (name == "TRACE" || name == "0") return LogLevel::trace;
  if (name == "DEBUG" || name == "1") return LogLevel::debug;
  if (name == "INFO" || name == "2") return LogLevel::info;
  if (name == "ERR" || name == "4") return LogLevel::error;
  if (name == "OFF" || name == "6") return LogLevel::off;
  return LogLevel::warn;
}

std::atomic<LogLevel>& level() {
  static std::atomic<LogLevel> current{level_from_environment()};
  return current;
}

std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::trace:
      return "trace";
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warn:
      return "warning";
    case LogLevel::error:
      return "error";
    case LogLevel::off:
      break;
  }
  return "off";
}

}  // namespace

LogLevel log_level() { return level(); }
void set_log_level(LogLevel new_level) { level() = new_level; }

void write_log(LogLevel message_level, std::string_view message) {
  const auto now = std::chrono::system_clock::now();
  const auto millis =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm local{};
  localtime_r(&seconds, &local);
  // One write, so that lines of several processes do not mix.
  const std::string line =
      fmt::format("[{:02}:{:02}:{:02}.{:03}] [poptorch:cpp] [{}] {}\n", local.tm_hour, local.tm_min,
                  local.tm_sec, millis, name_of(message_level), message);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace tessera
